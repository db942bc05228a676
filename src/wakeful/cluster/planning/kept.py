"""What a new leader knows from the statuses that the one before has written: the inverse of `status`."""

from collections.abc import Mapping
from typing import Any

from wakeful.cluster.planning.conditions import seconds_of
from wakeful.cluster.planning.world import ModelEntry, Owner, Placement, Scaling, ServerEntry, Source, State


def restore_model(entry: ModelEntry, status: Mapping[str, Any]) -> None:
    """Fill a new entry with what was decided and learnt."""
    artifact = status.get("artifact", {})
    entry.scaling = scaling_of(status)
    entry.placements = {placement.replica: placement for placement in placements_of(status)}
    entry.artifact, entry.artifact_bytes = artifact.get("revision", ""), artifact.get("bytes", 0)
    entry.footprint, entry.revision_failed = artifact.get("footprintBytes", 0), artifact.get("failedRevision", "")
    entry.sources = sources_of(status, entry.spec.revision)
    entry.changed = max((seconds_of(one["lastTransitionTime"]) for one in status.get("conditions", ()) if one["type"] == "Ready"), default=0.0)


def take_over(entry: ModelEntry, status: Mapping[str, Any]) -> None:
    """Another object has the name from now on: what was decided for the one before, and what failed of it, is forgotten. Its copies stay until the
    planner has others. `status`: the new one's, which is blank unless a leader before has known it."""
    there = {uid: placement for uid, placement in entry.placements.items() if placement.state is not State.FAILED}
    sources = entry.sources
    restore_model(entry, status)
    entry.placements, entry.sources = there | entry.placements, {**sources, **entry.sources}
    entry.resolved, entry.gone, entry.failures, entry.retry_at = "", False, 0, 0.0


def restore_server(entry: ServerEntry, status: Mapping[str, Any]) -> None:
    entry.scaling = scaling_of(status)


def scaling_of(status: Mapping[str, Any]) -> Scaling | None:
    keys = status.get("scaling")
    if not keys or "target" not in keys:
        return None
    time = keys.get("lastStepTime")
    return Scaling(Owner(keys["owner"]), keys["target"], keys.get("fromSpec", ""), seconds_of(time) if time else 0.0, keys.get("lastStep", ""))


def sources_of(status: Mapping[str, Any], beside: str) -> dict[str, Source]:
    """Of the revisions that copies had, beside the spec's own."""
    return {
        keys["revision"]: Source(keys["storageUri"], keys.get("backend"), keys.get("serving", {}), keys.get("secretName"), keys.get("artifact", ""))
        for keys in status.get("revisions", ()) if keys["revision"] != beside
    }


def placements_of(status: Mapping[str, Any]) -> list[Placement]:
    return [
        Placement(
            replica=keys["uid"], pod=keys["replica"], state=State(keys["state"]), revision=keys.get("revision", ""),
            since=seconds_of(keys["since"]) if "since" in keys else 0.0, tries=keys.get("tries", 0), error=keys.get("error", ""),
            previous=keys.get("previous", ""),
        )
        for keys in status.get("placements", ())
    ]
