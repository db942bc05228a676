"""What is answered to whoever looks at the daemon: dictionaries for JSON. Bytes and seconds; a time is seconds since 1970."""

import sys
from collections import deque
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from wakeful import __version__
from wakeful.clock import monotonic, wall
from wakeful.config import sources
from wakeful.config.effective import pipeline_keys
from wakeful.insight import views, wording
from wakeful.insight.history import COUNTERS, GAUGES, SPANS, History
from wakeful.insight.tracks import Track
from wakeful.insight.views import View
from wakeful.insight.watch import Watch
from wakeful.models.model import Model
from wakeful.models.pipelines.pipeline import Pipeline
from wakeful.runtime.messages import Signature
from wakeful.telemetry.events import Event, Kind
from wakeful.telemetry.metrics import ROWS

FORMAT = {"wakeful": 1}
"""Begins every answer: fields are added, and never come to mean something else."""
MOST_BANDS = 40
"""Models whose memory is shown each on its own."""
LATEST = 20
"""Events that are shown with a model."""


def state(watch: Watch, shown: Collection[View] | None = None) -> View:
    """Everything at once. `shown`: views of all models, as they were a moment ago."""
    now = monotonic()
    if shown is None:
        shown = list(watch.views())
    return {
        **FORMAT, "seq": watch.engine.events.seq, "time": wall(), "daemon": daemon(watch, shown),
        "models": [views.relative(view, now) for view in shown], "last": None if watch.last is None else event(watch.last),
    }


def daemon(watch: Watch, shown: Collection[View]) -> View:
    engine, about = watch.engine, watch.about
    condition = "ready" if engine.condition.ready else "stopping" if watch.stopping or engine.condition.draining else "starting"
    return {
        "version": __version__, "python": sys.version.split()[0], "pid": watch.pid, "up_seconds": monotonic() - about.started,
        "condition": condition, "cores": about.cores, "url": watch.url, "grpc_port": watch.grpc_port,
        "config": [str(file) for file in about.read_settings().files],
        "models": counts(shown),
        "memory": memory(watch),
        **rates(watch), "thrashing": engine.supervisor.thrash.count, "restarts": watch.restarts, "streams": watch.streams._asdict(),
        "nurseries": [{"library": library, "pid": pid or None} for library, pid in about.nurseries().items()],
        "problems": problems(watch),
    }


def memory(watch: Watch) -> View:
    """Bytes that models hold and may hold, and what there is."""
    supervisor, machine = watch.engine.supervisor, watch.about.machine
    return {
        "used": supervisor.resident, "budget": supervisor.budget, "machine": machine.limit,
        "source": wording.source_of_budget(watch.about.read_settings().memory.limit, machine.limit, machine.source), "margin": supervisor.margin,
    }


def rates(watch: Watch) -> View:
    """Of the last minute."""
    return views.flow_of_daemon(watch.history.window(watch.second))


def counts(shown: Collection[View]) -> View:
    """Of models by what they are; pipelines hold nothing, and what only helps models is counted with them."""
    return views.counts_of([view["state"] for view in shown if not view["pipeline"]])


def problems(watch: Watch) -> list[View]:
    """What somebody should see to."""
    about = watch.about
    found: list[View] = []
    if (kill := about.group_kill) is not None:
        found.append({"code": "group_kill", "text": wording.of_group_kill(kill), "hint": kill.hint})
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


def key_of(watch: Watch, name: str) -> str:
    """Raises as `named`."""
    one = named(watch, name)
    return one.id if isinstance(one, Pipeline) else one.key


def model(watch: Watch, name: str) -> View:
    """A model with all that is known of it."""
    one, now = named(watch, name), monotonic()
    if isinstance(one, Pipeline):
        (view,) = (shown for shown in watch.pipeline_views() if shown["key"] == one.id)
        signature, batches, cost, most = one.known_signature, [], None, 0
        said = watch.about.read_settings().sources
        own = pipeline_keys(one.settings).items()
        keys = [sources.Sourced(key, value, said.get(f"pipelines.{one.id}.{key}", sources.DEFAULT)) for key, value in own]
    else:
        view, signature, keys = watch.view(one), one.interface.signature, _keys(watch, one)
        track, costs = watch.tracks.get(one.key), one.batcher.costs
        batches = [] if track is None else _batches(track.rows_lately(watch.second))
        cost = {"a": costs.fixed, "b": costs.per_row} if costs.known else None
        most = one.batcher.limits.max_rows
    return {
        **FORMAT, "time": wall(), "model": views.relative(view, now), "signature": _signature(signature),
        "settings": [key._asdict() for key in keys],
        "batches": batches, "cost": cost, "max_batch_size": most,
        "events": events(watch, Wanted(limit=LATEST, model=str(view["key"])))["events"],
    }


def _keys(watch: Watch, one: Model) -> list[sources.Sourced]:
    """Its settings, and what was learnt instead."""
    keys = list(sources.of_model(one.settings, watch.about.read_settings()))
    most = one.batcher.limits.max_rows
    learnt = {"max_batch_size": most} if most < one.settings.batching.max_rows else {}
    return [key if key.key not in learnt else sources.Sourced(key.key, learnt[key.key], "learnt: more had no memory") for key in keys]


def config(watch: Watch) -> View:
    """The settings that count, each with where it comes from; of models what is not as the defaults have it."""
    settings = watch.about.read_settings()
    shown = sources.of_all(settings, ((one.key, _keys(watch, one)) for one in watch.engine.registry))
    return {**FORMAT, "files": [str(file) for file in settings.files], "settings": [key._asdict() for key in shown]}


def _batches(counts: list[int]) -> list[View]:
    return [{"rows": bound, "count": count} for bound, count in zip((*ROWS, None), counts, strict=True)]


def _signature(signature: Signature | None) -> View | None:
    return None if signature is None else {"inputs": views.tensors(signature.inputs), "outputs": views.tensors(signature.outputs)}


# ── the past ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def history(watch: Watch, name: str | None, span: str) -> View:
    """Of a model, or of the daemon (None): columns of even steps, oldest first, the newest one not over yet. None where nothing is known.

    A column of counts is what happened in the step; of the others its largest value.
    """
    step, length, _ = SPANS[span]
    begin = watch.ticked - 1 - (watch.second - (watch.second // step - length + 1) * step)
    answer = {**FORMAT, "step": step, "from": begin}
    if name is None:
        return answer | _ring(watch.history, watch.second, span) | _by_model(watch, span, begin)
    track = watch.tracks.get(key_of(watch, name))
    if track is None:
        series = dict.fromkeys((*COUNTERS, *GAUGES), [None] * length)
        return answer | {"series": series, "lat": [None] * length, "states": []}
    return answer | _ring(track.history, watch.second, span) | {"states": _changes(track, begin)}


def _ring(history: History, second: int, span: str) -> View:
    ring = history.rings[span]
    return {"series": ring.columns(second), "lat": ring.latencies(second)}


def _by_model(watch: Watch, span: str, begin: float) -> View:
    """Memory of the models that held most, that of the others in one; and how all have changed."""
    length = SPANS[span].length
    held = {key: track.history.rings[span].held(watch.second) for key, track in watch.tracks.items()}
    ranked = sorted(held, key=lambda key: -int(held[key].max(initial=0)))
    others = np.zeros(length, np.int64)
    for key in ranked[MOST_BANDS:]:
        others[length - len(held[key]) :] += held[key]
    return {
        "memory": {key: [None] * (length - len(held[key])) + held[key].tolist() for key in ranked[:MOST_BANDS]},
        "others": others.tolist() if len(ranked) > MOST_BANDS else None,
        "states": {key: changes for key, track in watch.tracks.items() if (changes := _changes(track, begin))},
    }


def _changes(track: Track, begin: float) -> list[View]:
    """Those of that time, and how it was before."""
    changes = list(track.changes)
    first = max((index for index, change in enumerate(changes) if change.time <= begin), default=0)
    return [{"t": change.time, "state": change.state, "reason": change.reason} for change in changes[first:]]


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
