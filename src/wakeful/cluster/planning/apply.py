"""Carrying out effects on the world. The only changes of entries that are decisions; all others are observations of the controller's loop."""

from collections.abc import Iterable

from wakeful.cluster.planning.draft import holders
from wakeful.cluster.planning.effects import Drop, Effect, Forget, Mark, Put, Release, ScaleServer, SetTarget
from wakeful.cluster.planning.world import World


def apply(world: World, effects: Iterable[Effect]) -> None:
    """Make the world as the plan wants it. What concerns a model or replica that has gone meanwhile, or has come back, is void."""
    moved: set[str] = set()
    for effect in effects:
        if isinstance(effect, Put | Drop | SetTarget | Forget):
            if effect.model in world.models:
                _apply_to_model(world, effect)
                moved.add(effect.model)
        elif isinstance(effect, Mark | ScaleServer):
            _apply_fields(world, effect)
        elif isinstance(effect, Release) and (replica := world.replicas.get(effect.replica)) is not None:
            replica.released = True
    for name in moved & world.models.keys():
        world.ledger.weigh(name, world.ledger.weight(name), holders(world.models[name]))


def _apply_to_model(world: World, effect: Put | Drop | SetTarget | Forget) -> None:
    model = world.models[effect.model]
    match effect:
        case Put(_, placement):
            model.placements[placement.replica] = placement
        case Drop(_, uid):
            model.placements.pop(uid, None)
        case SetTarget(_, scaling):
            model.scaling = scaling
        case Forget(name) if model.gone:
            del world.models[name]
            world.routing.pop(name, None)
            world.ledger.forget(name)


def _apply_fields(world: World, effect: Mark | ScaleServer) -> None:
    entry: object
    if isinstance(effect, ScaleServer):
        entry, fields = world.servers.get(effect.server), {"scaling": effect.scaling}
    else:
        entry = (world.models if effect.kind == "model" else world.servers).get(effect.name)
        fields = dict(effect.fields)
    if entry is not None:
        for name, value in fields.items():
            setattr(entry, name, value)
