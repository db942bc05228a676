"""What is answered to whoever looks at the daemon: dictionaries for JSON. Bytes and seconds; a time is seconds since 1970."""

import sys
from collections import deque
from collections.abc import Collection
from typing import Any, NamedTuple

from wakeful import __version__
from wakeful.clock import monotonic, wall
from wakeful.config.effective import model_keys, pipeline_keys
from wakeful.insight import views, wording
from wakeful.insight.views import View
from wakeful.insight.watch import Watch
from wakeful.models.model import Model
from wakeful.models.pipelines.pipeline import Pipeline
from wakeful.runtime.messages import Signature
from wakeful.telemetry.events import Event, Kind
from wakeful.telemetry.metrics import ROWS

FORMAT = {"wakeful": 1}
"""Begins every answer: fields are added, and never come to mean something else."""
LATEST = 20
"""Events that are shown with a model."""


class Streams(NamedTuple):
    """Of frames to those who follow."""

    open: int
    frames_dropped: int


def state(watch: Watch, streams: Streams) -> View:
    """Everything at once."""
    now = monotonic()
    shown = list(watch.views())
    return {
        **FORMAT, "seq": watch.engine.events.seq, "time": wall(), "daemon": daemon(watch, streams, shown),
        "models": [views.relative(view, now) for view in shown], "last": None if watch.last is None else event(watch.last),
    }


def daemon(watch: Watch, streams: Streams, shown: Collection[View]) -> View:
    engine, about = watch.engine, watch.about
    settings = about.read_settings()
    supervisor = engine.supervisor
    condition = "ready" if engine.condition.ready else "stopping" if watch.stopping or engine.condition.draining else "starting"
    return {
        "version": __version__, "python": sys.version.split()[0], "pid": watch.pid, "up_seconds": monotonic() - about.started,
        "condition": condition, "cores": about.cores, "url": watch.url, "grpc_port": watch.grpc_port,
        "config": [str(file) for file in settings.files],
        "models": counts(shown),
        "memory": {
            "used": supervisor.resident, "budget": supervisor.budget, "machine": about.machine.limit,
            "source": wording.source_of_budget(settings.memory.limit, about.machine.limit, about.machine.source), "margin": supervisor.margin,
        },
        **rates(watch), "thrashing": supervisor.thrash.count, "restarts": watch.restarts, "streams": streams._asdict(),
        "nurseries": [{"library": library, "pid": pid or None} for library, pid in about.nurseries().items()],
        "problems": problems(watch),
    }


def rates(watch: Watch) -> View:
    """Of the last minute."""
    return views.flow_of_daemon(watch.history.window(watch.second))


def counts(shown: Collection[View]) -> View:
    """Of models by what they are; pipelines hold nothing, and what only helps models is counted with them."""
    states = [view["state"] for view in shown if not view["pipeline"]]
    asleep, failed = states.count("asleep"), states.count("failed")
    return {"total": len(states), "awake": len(states) - asleep - failed, "asleep": asleep, "failed": failed}


def problems(watch: Watch) -> list[View]:
    """What somebody should see to."""
    about = watch.about
    found: list[View] = []
    if (kill := about.group_kill) is not None:
        text = f"if the kernel kills one model's process for memory, it ends this daemon too, so more is left free: {kill.text}"
        found.append({"code": "group_kill", "text": text, "hint": kill.hint})
    broken = {library: reason for library in about.nurseries() if (reason := about.broken(library))}
    found += [{"code": "library", "text": f"models for {library} cannot be loaded: {reason}", "hint": None} for library, reason in broken.items()]
    settings = about.read_settings()
    if watch.engine.supervisor.budget > about.machine.limit:
        found.append({"code": "budget", "text": "memory_limit is more than there is", "hint": "a smaller memory_limit, or none"})
    found += [{"code": one.code, "text": one.render().splitlines()[0], "hint": one.hint} for one in settings.warnings]
    return found


# ── one model ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def named(watch: Watch, name: str) -> Model | Pipeline:
    """By its key, or by its name: then the newest version. Raises NotFound, or Unavailable for what is elsewhere."""
    if name in watch.engine.pipelines:
        return watch.engine.pipelines.get(name)
    return watch.engine.registry.by_key(name) or watch.engine.registry.get(name)


def model(watch: Watch, name: str) -> View:
    """A model with all that is known of it."""
    one, now = named(watch, name), monotonic()
    if isinstance(one, Pipeline):
        (view,) = (shown for shown in watch.pipeline_views() if shown["key"] == one.id)
        signature, keys, batches, cost, most = one.known_signature, pipeline_keys(one.settings), [], None, 0
    else:
        view, signature, keys = watch.view(one), one.interface.signature, model_keys(one.settings)
        track, costs = watch.tracks.get(one.key), one.batcher.costs
        batches = [] if track is None else _batches(track.rows_lately(watch.second))
        cost = {"a": costs.fixed, "b": costs.per_row} if costs.known else None
        most = one.batcher.limits.max_rows
    return {
        **FORMAT, "time": wall(), "model": views.relative(view, now), "signature": _signature(signature),
        "settings": [{"key": key, "value": value, "source": None} for key, value in keys.items()],
        "batches": batches, "cost": cost, "max_batch_size": most,
        "events": events(watch, Wanted(limit=LATEST, model=str(view["key"])))["events"],
    }


def _batches(counts: list[int]) -> list[View]:
    return [{"rows": bound, "count": count} for bound, count in zip((*ROWS, None), counts, strict=True)]


def _signature(signature: Signature | None) -> View | None:
    return None if signature is None else {"inputs": views.tensors(signature.inputs), "outputs": views.tensors(signature.outputs)}


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Wanted(NamedTuple):
    """Which events somebody wants to see."""

    after: int = 0
    """Number of the last one that is known."""
    limit: int = 200
    """The newest of them."""
    model: str | None = None
    """A key, or a name: then of all its versions."""
    kinds: frozenset[Kind] = frozenset()
    """Empty: all."""
    reason: str | None = None
    since: float = 0.0
    """Seconds since 1970."""

    def includes(self, event: Event) -> bool:
        return (
            event.seq > self.after and event.time >= self.since and self.model in (None, event.model, event.model.partition(":")[0])
            and (not self.kinds or event.kind in self.kinds) and self.reason in (None, wording.reason_of(event))
        )


def events(watch: Watch, wanted: Wanted) -> View:
    """The newest ones, newest last."""
    found: deque[View] = deque(maxlen=wanted.limit)
    first = 0
    for one in watch.engine.events.kept():
        first = first or one.seq
        if wanted.includes(one):
            found.append(event(one))
    return {**FORMAT, "first": first, "events": list(found)}


def event(one: Event) -> dict[str, Any]:
    return {
        "seq": one.seq, "time": one.time, "kind": one.kind, "model": one.model, "reason": wording.reason_of(one), "text": one.text,
        "figures": one.figures,
    }
