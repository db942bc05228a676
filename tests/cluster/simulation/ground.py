"""What the controller has to do with, modelled: daemons that load and unload, gateways that acknowledge late, an API server that refuses at times.

Each checks what must hold where it is: a daemon that nobody sends there what it unloads, a gateway that it is sent only where a model is ready.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

import numpy as np

from wakeful.cluster.controller.api import MODEL
from wakeful.cluster.controller.writer import Key, Queue
from wakeful.cluster.planning.status import model_status
from wakeful.cluster.planning.world import Agent, Endpoint, Held, ModelEntry, Routing, World
from wakeful.cluster.wire import Wanted

MEMORY = 64 << 30
"""Bytes of a server replica."""
GATEWAYS = 2
AHEAD = 20
"""Targets that are written in one step: the others are decided again in the next one."""


class Broken(AssertionError):
    """Something that must always hold does not."""


class Events:
    """What happens later, in order."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()

    def at(self, when: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._numbers), what))

    def until(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            when, _, what = heapq.heappop(self._heap)
            what(when)


class Daemon:
    """A server replica with its agent. `told` is called with the name of a model of which it has something new to say."""

    def __init__(self, uid: str, slowness: float, sizes: Mapping[str, int], events: Events, told: Callable[["Daemon", str], None]) -> None:
        self.uid = uid
        self.held: dict[str, Held] = {}
        self.alive = True
        self.peak = 0
        self._slowness, self._sizes, self._events, self._told = slowness, sizes, events, told
        self._wanted: Mapping[str, Wanted] = {}
        self.sent: Callable[[str], bool] = lambda _: False
        """Does a gateway send requests for this model here?"""

    def hello(self, now: float) -> Agent:
        return Agent(frozenset({"onnx"}), MEMORY, 8000, None, now, dict(self.held))

    def obey(self, wanted: Mapping[str, Wanted], now: float) -> None:
        """Have what is wanted, and nothing else."""
        self._wanted = wanted
        for name in [name for name in self.held if name not in wanted]:
            if self.alive and self.sent(name):
                raise Broken(f"{now:.0f} s: {name} is unloaded on {self.uid}, and a gateway still sends requests there")
            del self.held[name]
            self._told(self, name)
        for name, what in wanted.items():
            held = self.held.get(name)
            if held is None or held.revision != what.revision:
                self._set(name, Held("loading", what.revision))
                self._events.at(now + self._loads_in(name), lambda at, name=name: self._loaded(name, at))  # type: ignore[misc]
            elif what.finish and held.state == "ready":
                self._set(name, held._replace(state="finishing"))
                self._events.at(now + 1.0, lambda at, name=name: self._finish(name, at))  # type: ignore[misc]
            elif not what.finish and held.state in {"finishing", "quiet"}:
                self._set(name, held._replace(state="ready"))

    def _loads_in(self, name: str) -> float:
        return (0.2 + self._sizes[name] / (200 << 20)) * self._slowness

    def _loaded(self, name: str, _: float) -> None:
        held = self.held.get(name)
        if not self.alive or held is None or held.state != "loading":
            return
        if name.startswith("broken"):
            self._set(name, held._replace(state="failed", error="the file is no model"))
        else:
            self._set(name, held._replace(state="ready", footprint=self._sizes[name], artifact="a1", artifact_bytes=self._sizes[name] // 2))

    def _finish(self, name: str, now: float) -> None:
        held = self.held.get(name)
        if not self.alive or held is None or held.state != "finishing":
            return
        if self.sent(name):
            self._events.at(now + 1.0, lambda at: self._finish(name, at))
        else:
            self._set(name, held._replace(state="quiet"))

    def _set(self, name: str, held: Held) -> None:
        self.held[name] = held
        self._told(self, name)


class Gateways:
    """Tables of all gateways: what each has acknowledged, and what is on its way to it."""

    def __init__(self, rng: np.random.Generator, events: Events, acknowledged: Callable[[str], None]) -> None:
        self._rng, self._events, self._acknowledged = rng, events, acknowledged
        self._tables: list[dict[str, frozenset[str]]] = [{} for _ in range(GATEWAYS)]
        self._sent: list[dict[str, list[frozenset[str]]]] = [{} for _ in range(GATEWAYS)]
        self._newest: dict[str, frozenset[str]] = {}

    def send(self, model: str, endpoints: Iterable[Endpoint], now: float) -> None:
        """Tell all of them, unless it is what they were told last."""
        uids = frozenset(endpoint.replica for endpoint in endpoints)
        if uids == self._newest.get(model, frozenset()):
            return
        self._newest[model] = uids
        for gateway in range(GATEWAYS):
            self._sent[gateway].setdefault(model, []).append(uids)
            delay = float(self._rng.exponential(0.3))
            self._events.at(now + min(delay, 5.0), lambda _, gateway=gateway: self._take(gateway, model, uids))  # type: ignore[misc]

    def _take(self, gateway: int, model: str, uids: frozenset[str]) -> None:
        waiting = self._sent[gateway].get(model, [])
        if uids not in waiting:
            return  # a later one has overtaken it
        del waiting[: waiting.index(uids) + 1]
        self._tables[gateway][model] = uids
        self._acknowledged(model)

    def routing(self, model: str) -> Routing:
        everywhere: frozenset[str] | None = None
        anywhere: frozenset[str] = frozenset()
        for table, sent in zip(self._tables, self._sent, strict=True):
            for uids in (table.get(model, frozenset()), *sent.get(model, ())):
                everywhere = uids if everywhere is None else everywhere & uids
                anywhere |= uids
        return Routing(everywhere or frozenset(), anywhere)

    def sends(self, model: str, uid: str) -> bool:
        return any(uid in table.get(model, ()) for table in self._tables)

    def table(self, model: str) -> frozenset[str]:
        """Where the first gateway sends: they differ for moments only."""
        return self._tables[0].get(model, frozenset())


class Api:
    """Statuses of models, written by the controller's own queue. At times it refuses all writes."""

    def __init__(self) -> None:
        self.statuses: dict[str, dict[str, Any]] = {}
        self.refuses_until = 0.0
        self.writes = 0
        self.busiest = 0
        """Most writes in one second."""
        self.crowded = 0
        """Most of one model in one second."""
        self.oldest = 0.0
        """Longest that a status waited while nothing was refused, in seconds."""
        self._queue = Queue()
        self._offered: dict[str, float] = {}
        self._ahead: list[str] = []

    def offer(self, name: str, now: float) -> None:
        self._queue.add(Key(MODEL, name))
        self._offered.setdefault(name, now)

    def write_ahead(self, entry: ModelEntry, world: World, now: float) -> bool:
        """A target, before anybody is told. False: refused."""
        if now < self.refuses_until or len(self._ahead) >= AHEAD:
            return False
        name = entry.spec.name
        self._write(entry, world, now)
        self._queue.charge(Key(MODEL, name), now)
        self._ahead.append(name)
        return True

    def second(self, now: float, world: World | None) -> None:
        """Write what is due from now to the next second. Without a leader nobody does."""
        if now < self.refuses_until:
            self._offered = dict.fromkeys(self._offered, self.refuses_until)
            return
        at, written = now, Counter(self._ahead)
        while at < now + 1.0:
            taken = self._queue.take(at)
            if taken is None:
                break
            if isinstance(taken, float):
                at += max(taken, 1e-6)
                continue
            waited = at - self._offered.pop(taken.name, at)
            if world is not None and self._write(world.models[taken.name], world, now):
                written[taken.name] += 1
                self.oldest = max(self.oldest, waited)
        count = written.total()
        self.writes, self.busiest, self._ahead = self.writes + count, max(self.busiest, count), []
        self.crowded = max(self.crowded, max(written.values(), default=0))

    def _write(self, entry: ModelEntry, world: World, now: float) -> bool:
        """False: it is there already."""
        before = self.statuses.get(entry.spec.name, {})
        after = self.statuses[entry.spec.name] = model_status(entry, world, before, now)
        return after != before

    def forget_queue(self) -> None:
        """Another leader: what the one before had not written is not written."""
        self._queue, self._offered, self._ahead = Queue(), {}, []
