"""What the daemon's own counters say of a model, of all its versions and revisions together. To look is no use of it."""

from collections.abc import Iterable, Mapping, Sequence

from wakeful.cluster.agent.watch import Reading
from wakeful.engine import Engine
from wakeful.models.model import Model
from wakeful.telemetry.metrics import ModelStats


def calls_by_model(engine: Engine) -> dict[str, list[float]]:
    """When those calls arrived that take several requests each, and are in flight."""
    calls: dict[str, list[float]] = {}
    for model, arrived in engine.calls.values():
        calls.setdefault(model, []).append(arrived)
    return calls


def read(models: Sequence[Model], stats: Iterable[ModelStats], calls: Sequence[float], now: float) -> Reading:
    """Requests that only are parts of a call have no protocol, and are not counted."""
    completed, spent, busy = 0, 0.0, 0.0
    for one in stats:
        completed += sum(one.requests.values())
        spent += one.request_seconds.sum
        busy += one.run_seconds.sum
    arrivals = list(calls)
    replicas = 0
    last_used: float | None = None
    for model in models:
        batcher = model.batcher
        arrivals += [request.arrived for request in batcher.in_flight() if request.protocol]
        busy += batcher.run_seconds(now)
        replicas += len(batcher.lanes)
        if model.last_used is not None and (last_used is None or model.last_used > last_used):
            last_used = model.last_used
    return Reading(now, completed, len(arrivals), spent, len(arrivals) * now - sum(arrivals), busy, replicas, last_used)


def footprint(models: Sequence[Model], resident: Mapping[str, int], before: int) -> int:
    """Bytes, as the supervisor measured them: shared weights once, private ones of each replica. What sleeps has what it had; 0: never measured."""
    now = sum(resident.get(model.key, 0) for model in models if model.group.ready())
    return now or before or sum(model.file.known().first_bytes or 0 for model in models)
