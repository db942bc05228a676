"""How models are shown. Looking changes nothing: no file is looked at, nobody wakes.

Times are moments on the monotonic clock until `relative` turns them into seconds from now, so that a view of a model to which nothing happens
stays the same view.
"""

from collections.abc import Sequence
from typing import Any

from wakeful.batching.settling import LEFT
from wakeful.config.kinds import KINDS
from wakeful.insight import wording
from wakeful.insight.counters import answered
from wakeful.insight.history import Window, percentile
from wakeful.insight.tracks import Track
from wakeful.models.model import Model
from wakeful.models.pipelines.pipeline import Pipeline
from wakeful.models.portrait import Portrait
from wakeful.replicas import idle
from wakeful.replicas.replica import Replica, State
from wakeful.runtime.messages import TensorSpec
from wakeful.telemetry.metrics import LATENCY_BOUNDS, SUCCESS, ModelStats

View = dict[str, Any]

AHEAD = ("sleeps_in", "retry_in")
"""Moments that are shown as seconds until then."""
AGO = ("last_used",)
"""Moments that are shown as seconds since then."""
_MOMENTS = (*AHEAD, *AGO)
_NONE = [0] * len(LATENCY_BOUNDS)
_REPLICA_STATES = {State.WAITING: "waiting", State.STARTING: "waking", State.DRAINING: "draining", State.DEAD: "dead"}


def relative(view: View, now: float) -> View:
    """The same, or a part of it, for whoever has another clock."""
    if not view.get("replicas") and all(view.get(key) is None for key in _MOMENTS):
        return view
    shown = view | {key: max(moment - now, 0.0) for key in AHEAD if (moment := view.get(key)) is not None}
    shown |= {key: max(now - moment, 0.0) for key in AGO if (moment := view.get(key)) is not None}
    if replicas := view.get("replicas"):
        shown["replicas"] = [replica | {"age_seconds": max(now - replica["age_seconds"], 0.0)} for replica in replicas]
    return shown


def state_of(model: Model) -> str:
    group = model.group
    if not group.replicas:
        return "asleep" if model.backoff.error is None else "failed"
    if group.ready():
        if model.leaving is not None:
            return "draining"
        return "busy" if model.batcher.busy else "ready"
    return "waking" if group.starting else "draining"


def counts_of(states: Sequence[str]) -> dict[str, int]:
    """How many models are awake, asleep and failed: who wakes or drains counts as awake."""
    asleep, failed = states.count("asleep"), states.count("failed")
    return {"total": len(states), "awake": len(states) - asleep - failed, "asleep": asleep, "failed": failed}


def view_of(model: Model, track: Track | None, window: Window | None, resident: int) -> View:
    """All that is shown of a model in every list. `window`: None where nothing has happened in the last minute. `resident`: bytes that it holds."""
    settings, interface = model.settings, model.interface
    replicas, alive = settings.replicas, model.group.replicas
    failure = model.backoff.error
    error = None if failure is None else failure.message
    state, queue = state_of(model), model.waiting
    running = model.batcher.active if alive else 0
    gone = track.gone if track is not None else None
    situation = wording.Situation(
        state, error, model.pinned, queue, running, all(one.state is State.WAITING for one in alive), model.leaving,
        gone and gone.reason, gone and gone.wanted_by,
    )
    private, shared = bytes_of(model) if alive else (0, 0)
    merging = f"not tested yet; {interface.verdict.reason}" if interface.undecided else interface.verdict.reason
    most = replicas.fixed or replicas.max_replicas or None
    return {
        "name": model.id, "version": settings.version, "key": model.key, "state": state, "reason": wording.why(situation),
        "pinned": model.pinned, "helps": KINDS[settings.backend].serves_models, "pipeline": False,
        "replicas": [_replica(model, one) for one in alive],
        "max_replicas": most, "min_replicas": replicas.fixed or replicas.min_replicas,
        "queue": queue, "running": running, **_flow(window), **_totals(model.stats),
        "private_bytes": private, "shared_bytes": shared, "resident_bytes": resident,
        "measured": is_measured(model),
        "sleeps_in": _asleep_at(model) if alive else None,
        "wakes_in": track.wake_seconds if track is not None else None,
        "retry_in": model.backoff.retry_at if error is not None else None,
        "last_used": model.last_used, "error": error,
        "path": str(settings.path), "backend": settings.backend, "description": settings.description,
        "merges": interface.merges, "batching": merging,
    }


def view_of_pipeline(pipeline: Pipeline, shown: Portrait, window: Window | None, last_used: float | None) -> View:
    """The same of models that are asked as one; what belongs to its models is shown with them."""
    return {
        "name": pipeline.id, "version": None, "key": pipeline.id, "state": "waking" if shown.state == "loading" else shown.state,
        "reason": shown.reason or "all its models are awake", "pinned": shown.pinned, "helps": False, "pipeline": True, "replicas": [],
        "max_replicas": None, "min_replicas": 0, "queue": 0, "running": 0, **_flow(window), **_totals(pipeline.stats),
        "private_bytes": 0, "shared_bytes": 0, "resident_bytes": 0, "measured": False, "sleeps_in": None, "wakes_in": None, "retry_in": None,
        "last_used": last_used, "error": None, "path": "", "backend": "pipeline",
        "description": shown.description, "merges": False, "batching": shown.batching,
    }


def _asleep_at(model: Model) -> float | None:
    life, replicas = model.settings.life, model.settings.replicas
    return idle.asleep_at(
        model.group.idle_views(), life.idle_timeout, replicas.min_replicas, model.pinned, together=replicas.fixed is not None,
    )


def _replica(model: Model, replica: Replica) -> View:
    state = _REPLICA_STATES.get(replica.state) or ("busy" if model.replica_busy(replica) else "ready")
    return {
        "index": replica.index, "state": state, "pid": replica.pid or None, "age_seconds": replica.created,
        "private_bytes": replica.private_bytes, "copied": replica.split_from is not None,
    }


def bytes_of(model: Model) -> tuple[int, int]:
    """Private to its replicas, all together, and shared by them."""
    replicas = model.group.replicas
    return sum(one.private_bytes for one in replicas), max((one.shared_bytes for one in replicas), default=0)


def is_measured(model: Model) -> bool:
    """Is what it holds measured, or only expected?"""
    replicas = model.group.replicas
    return bool(replicas) and all(one.measured for one in replicas)


def _flow(window: Window | None) -> View:
    """Of the last minute."""
    if window is None:
        return {"requests_per_second": 0.0, "failures_per_second": 0.0, "p50": None, "p99": None, "rows_per_run": None}
    rows = window.rows_per_run
    return flow_of_daemon(window) | {"rows_per_run": None if rows is None else round(rows, 3)}


def flow_of_daemon(window: Window) -> View:
    p50, p99 = percentile(window.latencies, 0.5), percentile(window.latencies, 0.99)
    return {
        "requests_per_second": round(window.rate("requests"), 3), "failures_per_second": round(window.rate("failures"), 3),
        "p50": p50 and round(p50, 6), "p99": p99 and round(p99, 6),
    }


def _totals(stats: ModelStats) -> View:
    """Since the daemon has started."""
    if not stats.requests and not stats.batch_rows.sum:
        return {"done": 0, "failed": 0, "rows": 0, "runs": 0, "lat": _NONE}
    done = failed = 0
    for (_, outcome), count in stats.requests.items():
        if outcome == SUCCESS:
            done += count
        elif outcome != LEFT:
            failed += count
    return {
        "done": done, "failed": failed, "rows": int(stats.batch_rows.sum), "runs": stats.batch_rows.count, "lat": answered(stats),
    }


def tensors(specs: "tuple[TensorSpec, ...]") -> list[View]:
    """Inputs or outputs; a free dimension is -1."""
    return [
        {"name": one.name, "datatype": one.datatype, "shape": [size if isinstance(size, int) else -1 for size in one.shape]} for one in specs
    ]
