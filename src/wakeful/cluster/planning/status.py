"""What people, autoscalers and the next leader read of a Model or a Server.

Nothing here changes by itself with time, so that a status is written only when something happened. `kept` reads it back.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from wakeful.cluster.planning.conditions import Condition, time_text, written
from wakeful.cluster.planning.counts import effective_target, floor_of, is_off, left_over, owner_of
from wakeful.cluster.planning.revisions import fallback, source_of, to_load
from wakeful.cluster.planning.shortfall import shortfall_text
from wakeful.cluster.planning.world import (
    ModelEntry,
    ModelSpec,
    Owner,
    Placement,
    Replica,
    Scaling,
    ServerEntry,
    ServerSpec,
    State,
    World,
)
from wakeful.telemetry.units import counted

MODEL_LABEL, SERVER_LABEL = "wakeful.dev/model", "wakeful.dev/server"
"""No pod carries the first, on purpose: two autoscalers may not own the same pods."""

# ── Model ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def model_status(entry: ModelEntry, world: World, previous: Mapping[str, Any], now: float, withheld: str = "") -> dict[str, Any]:
    """`previous` is the status as it stands in the API server, {} for none; `withheld` says why there are no keys of its storage."""
    spec, placements = entry.spec, entry.placements.values()
    desired = _desired(entry)
    able = _able(entry, world)
    kept = _kept(entry)
    placed = _placed(entry, world, desired, kept)
    conditions = [_model_ready(entry, desired, able, placed, withheld), placed, _scaling(entry, desired), _config_valid(spec)]
    artifact = {
        "revision": entry.artifact, "bytes": entry.artifact_bytes, "footprintBytes": entry.footprint, "failedRevision": entry.revision_failed,
    }
    return _without_blanks({
        "observedGeneration": spec.generation,
        "state": _state(entry, desired, able, now),
        "server": _server_of(entry, world) or previous.get("server") if placements else spec.server,
        "selector": f"{MODEL_LABEL}={spec.name}",
        "replicas": kept, "desiredReplicas": desired, "availableReplicas": able,
        "scaling": _scaling_keys(entry.scaling),
        "placements": [_placement_keys(placement) for placement in sorted(placements, key=lambda one: (one.pod, one.replica))],
        "artifact": {key: value for key, value in artifact.items() if value},
        "revisions": _revision_keys(entry) or None,
        "conditions": written(conditions, previous, spec.generation, now),
    })


def standing(entry: ModelEntry, world: World, now: float) -> tuple[str, Condition]:
    """`status.state` and the condition Ready, without all the rest; what is the matter with keys of storage is not in it."""
    desired, able = _desired(entry), _able(entry, world)
    return _state(entry, desired, able, now), _model_ready(entry, desired, able, _placed(entry, world, desired, _kept(entry)), "")


def without_a_place(entry: ModelEntry, world: World) -> str:
    """What the condition Placed says where not one copy has a place; else nothing."""
    kept = _kept(entry)
    placed = _placed(entry, world, _desired(entry), kept)
    return "" if kept or placed.holds else placed.message


def _desired(entry: ModelEntry) -> int:
    return entry.scaling.target if entry.scaling else effective_target(entry.spec.bounds, None, entry.hpa)


def _kept(entry: ModelEntry) -> int:
    return sum(placement.state not in (State.DRAINING, State.FAILED) for placement in entry.placements.values())


def _able(entry: ModelEntry, world: World) -> int:
    return sum(world.is_available(entry.spec.name, placement) for placement in entry.placements.values())


def rival_status(status: Mapping[str, Any], generation: int, group: str, now: float) -> dict[str, Any]:
    """Of an object whose name one of another group has. `status` is the one that it has in the API server."""
    message = f"an object of {group} has this name, and is served under it: delete one of them, or give it another name"
    conditions = [Condition(one, False, "NameTaken", message) for one in ("Ready", "ConfigValid")]
    return {"observedGeneration": generation, "state": "Failed", "conditions": written(conditions, status, generation, now)}


def _state(entry: ModelEntry, desired: int, able: int, now: float) -> str:
    if entry.gone:
        return "Terminating"
    if desired == 0:
        return "ScaledDown"
    if able:
        return "Degraded" if entry.revision_failed else "Available"
    if to_load(entry) is None or (entry.placements and not _hopeful(entry)):
        return "Failed"
    return "Waking" if now < entry.wanted_until else "Progressing"


def _hopeful(entry: ModelEntry) -> bool:
    return any(placement.state is not State.FAILED for placement in entry.placements.values())


def _model_ready(entry: ModelEntry, desired: int, able: int, placed: Condition, withheld: str) -> Condition:
    if desired == 0 and is_off(entry.spec.bounds):
        return Condition("Ready", False, "Off", "switched off by replicas: 0; requests are answered with 503. To serve it, set replicas to 1 or more")
    if desired == 0:
        return Condition("Ready", False, "ScaledDown", "no request for a while; the next one wakes it")
    if able and entry.revision_failed:
        failed = next((one for one in entry.placements.values() if one.error), None)
        where = f" on {failed.pod}: {failed.error}" if failed else ""
        onwards = "the one before serves on" if fallback(entry) else _UNKNOWN
        message = f"revision {entry.revision_failed} failed{where}; {onwards}. Correct the Model, or take the change back"
        return Condition("Ready", True, "RevisionFailed", message)
    if able:
        reason = "Available" if able >= desired else "Partial"
        return Condition("Ready", True, reason, f"{able} of {counted(desired, 'replica')} {'serves' if able == 1 else 'serve'}")
    if to_load(entry) is None:
        return Condition("Ready", False, "ConfigInvalid", "; ".join(entry.spec.errors))
    if failures := _failures(entry):
        return Condition("Ready", False, "LoadFailed", failures)
    if withheld and entry.placements:
        return Condition("Ready", False, "KeysMissing", withheld)
    if entry.placements:
        states = Counter(placement.state.value.lower() for placement in entry.placements.values())
        return Condition("Ready", False, "Loading", f"{', '.join(f'{count} {state}' for state, count in sorted(states.items()))}; none serves yet")
    return Condition("Ready", False, "NotPlaced", placed.message)


_UNKNOWN = ("the one before serves on where it is, and cannot be loaded anew, because what it was loaded from is not known any more: its copies are "
            "not replaced when their pods end")


def _failures(entry: ModelEntry) -> str:
    """Nothing where some copy may still come."""
    told = _errors(entry)
    if not told or _hopeful(entry):
        return ""
    return f"{told}. It is tried again{f' after {time_text(entry.retry_at)}' if entry.retry_at else ''}, and at once when the Model changes"


def _errors(entry: ModelEntry) -> str:
    """on triton-1: it did not load; on triton-2: ..."""
    failed = sorted(placement for placement in entry.placements.values() if placement.state is State.FAILED)
    return "; ".join(f"on {one.pod}: {one.error or 'it did not load'}" for one in failed)


def _placed(entry: ModelEntry, world: World, desired: int, kept: int) -> Condition:
    told = _errors(entry)
    if entry.short is not None and entry.short.missing:
        blocked = shortfall_text(entry.short, world, entry)
        message = f"{counted(entry.short.missing, 'replica')} of {desired} without a place: {blocked}{f'; {told}' if told else ''}"
        causes = {cause for filters in entry.short.blocked.values() for cause in filters}
        reason = "LoadFailed" if told and causes <= {"failed there", "has a copy"} else "NoRoom"
        return Condition("Placed", False, reason if world.replicas else "NoServer", message)
    if told and kept < desired:
        return Condition("Placed", False, "LoadFailed", f"{kept} of {counted(desired, 'replica')} placed; {told}")
    if kept < desired:
        reason, message = ("ConfigInvalid", "; ".join(entry.spec.errors)) if entry.spec.errors else ("Pending", "not looked at yet")
        return Condition("Placed", False, reason, f"{kept} of {counted(desired, 'replica')} placed: {message}")
    return Condition("Placed", True, "Placed", f"all {counted(desired, 'replica')}" if desired != 1 else "its replica has a place")


def _scaling(entry: ModelEntry, desired: int) -> Condition:
    bounds = entry.spec.bounds
    if entry.hpa:
        left = left_over(bounds, entry.scaling)
        return Condition("Scaling", True, "HPA", f"a HorizontalPodAutoscaler decides the count; the scheduler does not{left}")
    if not bounds.ranged:
        return Condition("Scaling", False, "Off", "neither minReplicas nor maxReplicas is set: the count is fixed")
    if entry.limited:
        return Condition("Scaling", False, "Limited", f"load asks for more than {counted(desired, 'replica')}: {entry.limited}")
    most = "no maximum" if bounds.maximum is None else f"at most {bounds.maximum}"
    return Condition("Scaling", True, "Active", f"by load: at least {floor_of(bounds)}, {most}")


def _config_valid(spec: ModelSpec | ServerSpec) -> Condition:
    if spec.errors:
        return Condition("ConfigValid", False, "NotSupported" if "not supported" in spec.errors[0] else "Invalid", "; ".join(spec.errors))
    if spec.notes:
        return Condition("ConfigValid", True, "PartlyOfNoEffect", "; ".join(spec.notes))
    return Condition("ConfigValid", True, "Valid", "everything that it says has its effect")


def _server_of(entry: ModelEntry, world: World) -> str | None:
    return next((world.replicas[uid].server for uid in entry.placements if uid in world.replicas), None)


def _placement_keys(placement: Placement) -> dict[str, Any]:
    keys = {
        "replica": placement.pod, "uid": placement.replica, "state": placement.state.value, "revision": placement.revision,
        "since": time_text(placement.since), "previous": placement.previous, "tries": placement.tries, "error": placement.error,
    }
    return {key: value for key, value in keys.items() if value}


def _revision_keys(entry: ModelEntry) -> list[dict[str, Any]]:
    """What its copies are loaded from, for the time after another spec: the next leader may never have seen this one."""
    used = {revision for one in entry.placements.values() for revision in (one.revision, one.previous)}
    known = {**entry.sources, **({entry.spec.revision: source_of(entry, entry.spec.revision)} if entry.spec.revision in used else {})}
    keys = [
        {"revision": revision, "storageUri": one.storage_uri, "backend": one.backend, "serving": dict(one.serving), "secretName": one.secret,
         "artifact": one.artifact}
        for revision, one in known.items() if one is not None
    ]
    return [{key: value for key, value in one.items() if value} for one in keys]


def _scaling_keys(scaling: Scaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    keys = {"owner": scaling.owner.value, "target": scaling.target, "fromSpec": scaling.from_spec}
    return keys | ({"lastStepTime": time_text(scaling.last_step_time), "lastStep": scaling.last_step} if scaling.last_step else {})


def _without_blanks(status: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in status.items() if value not in (None, {}, "")}


# ── Server ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Observed(NamedTuple):
    """What the status of a Server has beyond the world: of its StatefulSet, and of the ledger."""

    updated: int = 0
    """Pods of the present template."""
    rolling: bool = False
    """A change of the template is under way."""
    refused: str = ""
    """What the API server said of an object that we wanted."""
    capacity: int = 0
    registered: int = 0
    active: int = 0
    surging: bool = False
    """There is one pod more than there should be."""


def server_status(entry: ServerEntry, world: World, observed: Observed, previous: Mapping[str, Any], now: float) -> dict[str, Any]:
    """`previous` is the status as it stands in the API server, {} for none."""
    spec = entry.spec
    replicas = [replica for replica in world.replicas.values() if replica.server == spec.name]
    ready = sum(replica.ready and not replica.lost for replica in replicas)
    desired = entry.scaling.target if entry.scaling else effective_target(spec.bounds, None, entry.hpa)
    conditions = [
        _server_ready(desired, ready), _progressing(replicas, desired, ready, observed), _scale_owner(entry), _degraded(spec, replicas, observed),
        _config_valid(spec),
    ]
    memory = {"capacityBytes": observed.capacity, "registeredBytes": observed.registered, "activeBytes": observed.active}
    return _without_blanks({
        "observedGeneration": spec.generation, "selector": f"{SERVER_LABEL}={spec.name}",
        "replicas": len(replicas), "readyReplicas": ready, "desiredReplicas": desired, "updatedReplicas": observed.updated,
        "loadedModels": loaded_models(replicas, world), "asleepModels": asleep_models(replicas),
        "scaling": _scaling_keys(entry.scaling), "memory": memory,
        "conditions": written(conditions, previous, spec.generation, now),
    })


def loaded_models(replicas: list[Replica], world: World) -> int:
    """Copies that serve on replicas that stay; one that leaves has its models counted where they go."""
    staying = {replica.uid for replica in replicas if replica.leaving_by is None and not replica.lost}
    return sum(
        placement.state is State.ROUTED
        for entry in world.models.values() for uid, placement in entry.placements.items() if uid in staying
    )


def asleep_models(replicas: list[Replica]) -> int:
    """Copies, of those that serve, that have no memory until the next request."""
    return sum(held.asleep for replica in replicas if replica.agent is not None and not replica.lost for held in replica.agent.held.values())


def _server_ready(desired: int, ready: int) -> Condition:
    if ready:
        reason = "Available" if ready >= desired else "Partial"
        return Condition("Ready", True, reason, f"{ready} of {counted(desired, 'pod')} {'is' if ready == 1 else 'are'} ready")
    if desired == 0:
        return Condition("Ready", False, "ScaledDown", "it has no pods, as it should; a request for one of its models wakes it where that is allowed")
    return Condition("Ready", False, "NoPodReady", f"none of {counted(desired, 'pod')} is ready; kubectl describe pod says why")


def _progressing(replicas: list[Replica], desired: int, ready: int, observed: Observed) -> Condition:
    leaving = sorted(replica.pod for replica in replicas if replica.leaving_by is not None)
    if observed.rolling:
        return Condition("Progressing", True, "RollingOut", f"{observed.updated} of {counted(desired, 'pod')} have the new template")
    if leaving:
        return Condition("Progressing", True, "Draining", f"models move off {', '.join(leaving)}")
    if observed.surging:
        return Condition("Progressing", True, "Surging", "there is one pod more until all others are ready")
    if ready != desired:
        return Condition("Progressing", True, "Scaling", f"from {ready} to {counted(desired, 'ready pod')}")
    return Condition("Progressing", False, "Stable", f"{counted(desired, 'pod')}, as it should be")


_OWNERS: Mapping[Owner, str] = {
    Owner.HPA: "a HorizontalPodAutoscaler writes spec.replicas",
    Owner.SCHEDULER: "the scheduler decides by its models, since minReplicas or maxReplicas is set",
    Owner.USER: "spec.replicas is the count",
}


def _scale_owner(entry: ServerEntry) -> Condition:
    bounds = entry.spec.bounds
    owner = entry.scaling.owner if entry.scaling else owner_of(bounds, entry.hpa)
    unheard = left_over(bounds, entry.scaling) if owner is Owner.HPA else ""
    if owner is Owner.HPA and bounds.ranged:
        unheard += "; minReplicas and maxReplicas of the Server are for the scheduler and do not bind it"
    return Condition("ScaleOwner", True, owner.value, f"{_OWNERS[owner]}{unheard}")


def _degraded(spec: ServerSpec, replicas: list[Replica], observed: Observed) -> Condition:
    lost = sorted(replica.pod for replica in replicas if replica.lost)
    silent = sorted(replica.pod for replica in replicas if replica.ready and not replica.lost and replica.agent is None)
    if observed.refused:
        return Condition("Degraded", True, "Refused", f"the API server refuses what it needs: {observed.refused}")
    if spec.errors:
        return Condition("Degraded", True, "ConfigInvalid", "its pods stay as they are until the configuration is right; see ConfigValid")
    if lost:
        message = (f"{', '.join(lost)}: the node does not answer. Its models go elsewhere; the pod is replaced once it is deleted, or its node is "
                   "tainted node.kubernetes.io/out-of-service")
        return Condition("Degraded", True, "NodeLost", message)
    if silent:
        return Condition("Degraded", True, "AgentSilent", f"{', '.join(silent)}: ready, but not heard from; no new models go there")
    return Condition("Degraded", False, "AsExpected", "no replica is lost or silent")
