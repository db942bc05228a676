"""What gateways are told of all models, for callers who ask which there are. Nothing is planned for it."""

from wakeful.cluster.planning.status import standing
from wakeful.cluster.planning.world import ModelEntry, ServerEntry, State, World
from wakeful.cluster.wire import ModelsTold, Standing

LONGEST_REASON = 200
"""Characters. Who wants more asks for the Model."""


def standings(world: World, now: float) -> ModelsTold:
    there = sorted(name for name, entry in world.models.items() if not entry.gone)
    guards = {name: "" for name, server in sorted(world.servers.items()) if _asks_for_keys(server)}
    for name in there if guards else ():
        for server in _routed_on(world.models[name], world) & guards.keys():
            guards[server] = guards[server] or name
    return ModelsTold([_standing(world.models[name], world, now) for name in there], guards)


def _standing(entry: ModelEntry, world: World, now: float) -> Standing:
    state, ready = standing(entry, world, now)
    return Standing(entry.spec.name, state, ready.holds, "" if state == "Available" else ready.message[:LONGEST_REASON])


def _asks_for_keys(server: ServerEntry) -> bool:
    """By its `config.auth`, as the daemon reads it."""
    auth = server.spec.config.get("auth")
    return auth is not None and auth.get("enabled", True) is not False


def _routed_on(entry: ModelEntry, world: World) -> set[str]:
    routed = (uid for uid, one in entry.placements.items() if one.state is State.ROUTED and uid in world.replicas)
    return {world.replicas[uid].server for uid in routed}
