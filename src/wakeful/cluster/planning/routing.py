"""What follows from the placements for others: whom gateways send requests to, and what a replica is to have."""

from wakeful.cluster.planning.counts import owner_of
from wakeful.cluster.planning.revisions import source_of
from wakeful.cluster.planning.scaling import limits_in
from wakeful.cluster.planning.world import Endpoint, ModelEntry, Owner, Placement, Replica, Source, State, World
from wakeful.cluster.wire import Wanted


def routes(world: World) -> dict[str, tuple[Endpoint, ...]]:
    """Endpoints of all models that have some."""
    found = ((name, endpoints(world, model)) for name, model in world.models.items())
    return {name: there for name, there in found if there}


def endpoints(world: World, model: ModelEntry) -> tuple[Endpoint, ...]:
    """Where a model's requests go: its routed copies on ready pods, in the order of their uids.

    If none of these pods is ready, all of them: a gateway that tries finds out more than one that refuses.
    """
    routed = [
        replica for uid, placement in model.placements.items()
        if placement.state is State.ROUTED and (replica := world.replicas.get(uid)) is not None and not replica.lost
    ]
    ready = [replica for replica in routed if replica.ready] or routed
    return tuple(sorted(endpoint for replica in ready if (endpoint := _endpoint(replica)) is not None))


def desired(world: World, uid: str) -> dict[str, Wanted]:
    """All models that a replica is to have. What is absent it unloads. Keys of storage are added by who may read Secrets."""
    wanted: dict[str, Wanted] = {}
    for name, model in world.models.items():
        placement = model.placements.get(uid)
        if placement is not None and placement.state is not State.FAILED:
            wanted[name] = wanted_of(world, model, placement)
    return wanted


def wanted_of(world: World, model: ModelEntry, placement: Placement) -> Wanted:
    """What the replica of a placement is told of the model."""
    spec, source = model.spec, source_of(model, placement.revision) or Source("")
    watched = owner_of(spec.bounds, model.hpa) is Owner.SCHEDULER
    limits = limits_in(world, model) if watched else None
    return Wanted(
        revision=placement.revision,
        storage_uri=source.storage_uri,
        backend=source.backend,
        serving=dict(source.serving),
        pinned=spec.pinned,
        finish=placement.state is State.DRAINING,
        artifact=source.artifact,
        lag_threshold=limits.lag_threshold if limits is not None else None,
        inactive=limits.inactive if limits is not None else None,
        memory=spec.memory,
    )


def _endpoint(replica: Replica) -> Endpoint | None:
    """What its agent says of the ports goes before what the pod says."""
    told = replica.agent or replica
    return Endpoint(replica.uid, replica.ip, told.http_port, told.grpc_port) if replica.ip is not None and told.http_port is not None else None
