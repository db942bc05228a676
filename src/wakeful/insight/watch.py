"""The daemon looks at itself once a second: what every model has counted goes into its rings, and whoever follows is told what has changed.

A model that has never woken costs nothing: it is not looked at. Nothing here wakes one, keeps one awake or counts as its use.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from wakeful.clock import monotonic, wall
from wakeful.config.settings import Settings
from wakeful.engine import Engine
from wakeful.insight import views
from wakeful.insight.counters import minus, read
from wakeful.insight.history import BUCKETS, History, Window
from wakeful.insight.tracks import NOTHING, Gone, Levels, Track, difference
from wakeful.insight.views import View
from wakeful.insight.wording import LETTERS
from wakeful.memory.budget import GroupKill, Memory
from wakeful.models.model import Model
from wakeful.telemetry.events import Event

log = logging.getLogger(__name__)

TICK = 1.0
"""Seconds."""
SLICE = 16
"""Models that are looked at in one turn of the loop: a third of a millisecond. Requests go on in between."""
MOST_GONE = 32
"""Models and pipelines that are not there any more of which the past is kept: names come and go without end, versions above all."""
REMEMBERED: frozenset[str] = frozenset({"evict", "scale", "unload", "load", "restart"})
"""Kinds of which the newest is shown beside the models."""


@dataclass(frozen=True)
class About:
    """What only the composition root knows."""

    read_settings: Callable[[], Settings]
    cores: int
    machine: Memory
    """As it was at the start."""
    group_kill: GroupKill | None
    nurseries: Callable[[], dict[str, int]]
    broken: Callable[[str], str]
    """Why a backend's library does not import."""
    started: float
    """On the monotonic clock."""


class Streams(NamedTuple):
    """Of frames to those who follow."""

    open: int
    frames_dropped: int


class Watch:
    """All that is remembered of models and daemon. The only writer of it is the event loop."""

    def __init__(self, engine: Engine, about: About) -> None:
        self.engine = engine
        self.about = about
        self.url = ""
        self.grpc_port: int | None = None
        self.tracks: dict[str, Track] = {}
        """By key, of models that have woken, and of pipelines that were asked."""
        self.second = 0
        """Ticks so far: the number of the second that has begun."""
        self.history = History(0)
        """Of the daemon."""
        self.ticked = wall()
        """When the second began, in seconds since 1970."""
        self.streams = Streams(0, 0)
        self.last: Event | None = None
        self.restarts = 0
        """Replicas and nurseries that have died, all together."""
        self.pid = os.getpid()
        self.stopping = False
        self.on_tick: list[Callable[[], Awaitable[None]]] = []
        self.on_event: list[Callable[[Event], None]] = []
        self._unnamed = read(engine.metrics.unnamed)
        engine.events.watchers.append(self._heard)

    async def run(self) -> None:
        """Tick for ever."""
        origin = monotonic()
        while True:
            due = origin + (self.second + 1) * TICK
            await asyncio.sleep(max(due - monotonic(), 0.0))
            behind = int((monotonic() - due) / TICK)  # a daemon that stood still has one tick for all of it
            self.second += 1 + behind
            try:
                await self.tick()
                for tell in self.on_tick:
                    await tell()
            except Exception:
                log.exception("a look at the models has failed")

    # ── every second ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def tick(self) -> None:
        """Take note of what has happened since the last one, a few models in a turn of the loop."""
        unnamed = read(self.engine.metrics.unnamed)
        sums, latencies, levels = difference(unnamed.own, self._unnamed.own), [0] * BUCKETS, NOTHING
        self._unnamed = unnamed
        for key in self.engine.supervisor.holders():
            self.track(key)
        for pipeline in self.engine.pipelines:
            if pipeline.stats.requests and pipeline.id not in self.tracks:
                self.tracks[pipeline.id] = Track(pipeline.stats, self.second, whole=True)
        now, gone = wall(), []
        self.ticked = now
        for number, (key, track) in enumerate(list(self.tracks.items())):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            model = self.engine.registry.by_key(key)
            mine = NOTHING if model is None else _levels(model)
            if mine != NOTHING:
                levels = Levels(*(one + other for one, other in zip(levels, mine, strict=True)))
            if model is not None:
                track.changed(now, _coarse(views.state_of(model)))
            elif key not in self.engine.pipelines:
                track.changed(now, "asleep")
                gone.append(key)
            readings = track.record(self.second, mine)
            if readings is not None:
                before, after = readings
                sums = [one + other for one, other in zip(sums, difference(after.own, before.own), strict=True)]
                if after.own_latencies != before.own_latencies:
                    happened = minus(after.own_latencies, before.own_latencies)
                    latencies = [one + other for one, other in zip(latencies, happened, strict=True)]
        self.history.record(self.second, (*sums, *levels), latencies)
        for key in sorted(gone, key=lambda key: self.tracks[key].moved)[: -MOST_GONE]:
            del self.tracks[key]

    def track(self, key: str) -> Track | None:
        """What is remembered of a model, from now on if not before; None: no model is called so."""
        if (known := self.tracks.get(key)) is not None:
            return known
        model = self.engine.registry.by_key(key)
        if model is None:
            return None
        track = self.tracks[key] = Track(model.stats, self.second)
        return track

    def window(self, key: str) -> Window | None:
        track = self.tracks.get(key)
        return None if track is None else track.window(self.second)

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _heard(self, event: Event) -> None:
        """Called by whatever has just decided something, which must not fail for it."""
        try:
            if event.kind in REMEMBERED:
                self.last = event
            self.restarts += event.kind == "restart"
            if event.model and event.kind in _CHANGING:
                self._changed(event)
            for tell in self.on_event:
                tell(event)
        except Exception:
            log.exception("an event could not be shown")

    def _changed(self, event: Event) -> None:
        track = self.track(event.model)
        model = self.engine.registry.by_key(event.model)
        if track is None or model is None:
            return
        seconds, room = event.figures.get("seconds"), event.figures.get("room_seconds")
        if event.kind == "load" and isinstance(seconds, float) and isinstance(room, float) and len(model.group.ready()) == 1:
            track.wake_seconds = seconds - room
            track.changed(event.time - seconds, "waking")
        elif event.kind == "evict":
            wanted_by = event.figures.get("wanted_by")
            track.gone = Gone(str(event.figures.get("reason")), str(wanted_by) if wanted_by else None, event.seq, event.time)
        elif event.kind in ("unload", "restart") and not model.group.replicas:
            reason = str(event.figures.get("reason", "died"))
            if track.gone is None or track.gone.reason != reason or reason not in ("lru", "capacity", "oom"):
                track.gone = Gone(reason, None, event.seq, event.time)
            track.changed(event.time, "asleep", LETTERS.get(reason))
            return
        track.changed(event.time, _coarse(views.state_of(model)), "x" if event.kind == "refuse" else None)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def keys(self) -> set[str]:
        """Of everything that can be asked."""
        return {*(model.key for model in self.engine.registry), *(pipeline.id for pipeline in self.engine.pipelines)}

    def views(self) -> Iterator[View]:
        """Of every model and every pipeline."""
        resident = self.engine.supervisor.resident_by_model()
        for model in self.engine.registry:
            yield self.view(model, resident)
        yield from self.pipeline_views()

    def pipeline_views(self) -> Iterator[View]:
        for pipeline in self.engine.pipelines:
            yield views.view_of_pipeline(pipeline, pipeline.portrait(), self.window(pipeline.id), pipeline.last_used)

    def view(self, model: Model, resident: Mapping[str, int] | None = None) -> View:
        """`resident`: what each model holds, where it is known already."""
        track = self.tracks.get(model.key)
        held = self.engine.supervisor.resident_of(model.key) if resident is None else resident.get(model.key, 0)
        return views.view_of(model, track, None if track is None else track.window(self.second), held)


_CHANGING: frozenset[str] = frozenset({"load", "unload", "restart", "evict", "refuse"})
"""Kinds of events with which a model's state may change."""


def _coarse(state: str) -> str:
    return "ready" if state == "busy" else state


def _levels(model: Model) -> Levels:
    if not model.group.replicas:
        waiting = model.waiting
        return Levels(waiting, 0, 0, 0, 0) if waiting else NOTHING
    return Levels(model.waiting, model.batcher.active, len(model.group.replicas), *views.bytes_of(model))
