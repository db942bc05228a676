"""The supervisor among models that load, run, drain and go in time that jumps. No process and no socket: what it decides is what is looked at."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from tests.batching.stage import VirtualLoop
from wakeful.errors import WakefulError
from wakeful.memory.budget import Memory
from wakeful.memory.supervisor import Standing, Supervisor, Tenant
from wakeful.telemetry.events import Event, Events
from wakeful.telemetry.metrics import UnloadReason

PLENTY = 10**12
PATIENCE = 1000.0
"""Seconds after the last request from which on an answer counts as lost."""


class Kind(NamedTuple):
    """A model, and how much it is asked for."""

    bytes: int
    weight: float = 1.0
    """Its part of the traffic."""
    pinned: bool = False
    never_idle: bool = False
    """Somebody asks it again as soon as it has answered."""
    guess: int = 0
    """Bytes that it is taken for too much, each time."""


class Traffic(NamedTuple):
    clients: int = 12
    seconds: float = 120.0
    residency: float = 2.0
    load: float = 0.2
    """Seconds that a load takes at most; also what a run may take, and an end."""
    think: float = 0.05
    """Mean seconds between an answer and the next question of a client."""


@dataclass
class Outcome:
    """What became of it."""

    events: tuple[Event, ...] = ()
    refused: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """From the first request to the last answer."""
    waits: list[float] = field(default_factory=list)
    """Seconds from each ask for room to the grant, and so far of those who wait at the end."""
    ready: list[float] = field(default_factory=list)
    """Moments at which a load was done."""
    answered: list[int] = field(default_factory=list)
    """Requests, by model."""
    most: int = 0
    """Bytes resident at the worst moment."""
    left: tuple[int, int, float] = (0, 0, 0.0)
    """Resident and expected bytes and the age of the oldest load when all have gone."""


class _Model:
    """One replica, or none."""

    def __init__(self, park: "_Park", number: int, kind: Kind) -> None:
        self.kind = kind
        self.tenant: Tenant | None = None
        self._park, self._number = park, number
        self._state = "asleep"
        self._last_used = 0.0
        self._runs = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def quiet(self) -> bool:
        """It may sleep or be loaded, but nothing is under way."""
        return self._state in ("asleep", "ready") and not self._runs and not self._waiting

    def ask(self, answered: Callable[[], None]) -> None:
        if self._state == "ready":
            self._run(answered)
            return
        self._waiting.append(answered)
        if self._state == "asleep":
            self.wake()

    def wake(self) -> None:
        self._state = "waiting"
        self._park.asked[self._number] = self._park.loop.now
        size = self.kind.bytes
        self.tenant = Tenant(
            f"m{self._number}", 0, size + self.kind.guess, least=size, primary=True, granted=self._granted, refused=self._refused, evict=self.leave,
            standing=self._standing,
        )
        self._park.supervisor.admit(self.tenant)

    def leave(self, reason: UnloadReason) -> None:
        assert self._state == "ready", f"m{self._number} is {self._state} and was told to go"
        self._state = "draining"
        self._go_when_done()

    def _standing(self) -> Standing:
        ready = self._state == "ready"
        return Standing(
            self._last_used, ready and not self._runs, self.kind.pinned, self._park.traffic.residency, ready, self._state == "draining"
        )

    def _granted(self) -> None:
        self._state = "loading"
        park = self._park
        park.outcome.waits.append(park.loop.now - park.asked.pop(self._number))
        park.later(self._ready)

    def _refused(self, error: WakefulError) -> None:
        self._park.outcome.refused.append(error.message)

    def _ready(self) -> None:
        assert self.tenant is not None
        self._state = "ready"
        self._last_used = self._park.loop.now
        self._park.outcome.ready.append(self._park.loop.now)
        self._park.supervisor.loaded_now(self.tenant)
        self._park.supervisor.measured(self.tenant, 0, self.kind.bytes)
        waiting, self._waiting = self._waiting, []
        for answered in waiting:
            self.ask(answered)
        self._park.supervisor.look()

    def _run(self, answered: Callable[[], None]) -> None:
        self._runs += 1
        self._park.later(lambda: self._done(answered))

    def _done(self, answered: Callable[[], None]) -> None:
        self._runs -= 1
        self._last_used = self._park.loop.now
        self._park.outcome.answered[self._number] += 1
        answered()
        if self._state == "draining":
            self._go_when_done()
        elif not self._runs:
            self._park.supervisor.look()

    def _go_when_done(self) -> None:
        if not self._runs:
            self._park.later(self._gone)

    def _gone(self) -> None:
        assert self.tenant is not None
        self._state = "asleep"
        tenant, self.tenant = self.tenant, None
        self._park.supervisor.release(tenant)
        if self._waiting:
            self.wake()


class _Park:
    def __init__(self, loop: VirtualLoop, kinds: Sequence[Kind], budget: int, max_loaded: int | None, traffic: Traffic, seed: int) -> None:
        self.loop, self.traffic, self.rng = loop, traffic, random.Random(seed)
        self.outcome = Outcome(answered=[0] * len(kinds))
        self.asked: dict[int, float] = {}
        """Who waits for room, since when."""
        self.events = Events(capacity=1_000_000, now=loop.time)
        self.supervisor = Supervisor(budget, max_loaded, lambda: Memory(PLENTY, PLENTY, "a simulation"), self.events)
        self.models = [_Model(self, number, kind) for number, kind in enumerate(kinds)]
        self._weights = [kind.weight for kind in kinds]
        self._end = loop.now + traffic.seconds
        self.outcome.seconds -= loop.now

    def later(self, act: Callable[[], None]) -> None:
        self.loop.call_later(self.rng.uniform(0.1, 1.0) * self.traffic.load, self._act, act)

    def _act(self, act: Callable[[], None]) -> None:
        act()
        self.outcome.most = max(self.outcome.most, self.supervisor.resident)

    def run(self) -> Outcome:
        for model in self.models:
            if model.kind.pinned:
                model.wake()
            if model.kind.never_idle:
                self._ask_on(model)
        for _ in range(self.traffic.clients):
            self._next()
        self.loop.call_later(self.traffic.seconds, self._stop_when_served)
        self.loop.run_forever()
        self.outcome.seconds += self.loop.now
        self.outcome.waits += [self.loop.now - asked for asked in self.asked.values()]
        self._empty()
        self.outcome.events = self.events.list(limit=1_000_000)
        return self.outcome

    def _stop_when_served(self) -> None:
        if all(model.quiet for model in self.models) or self.loop.now > self._end + PATIENCE:
            self.loop.stop()
        else:
            self.loop.call_later(1.0, self._stop_when_served)

    def _next(self) -> None:
        if self.loop.now < self._end:
            (model,) = self.rng.choices(self.models, self._weights)
            model.ask(self._think)

    def _think(self) -> None:
        self.loop.call_later(self.rng.expovariate(1 / self.traffic.think), self._next)

    def _ask_on(self, model: _Model) -> None:
        if self.loop.now < self._end:
            model.ask(lambda: self._ask_on(model))

    def _empty(self) -> None:
        """Put all to sleep by hand."""
        for model in self.models:
            if model.tenant is not None and model.tenant.standing().loaded:
                model.leave("manual")
        self.loop.call_later(10 * self.traffic.load, self.loop.stop)
        self.loop.run_forever()
        supervisor = self.supervisor
        self.outcome.left = (supervisor.resident, supervisor.expected, supervisor.oldest_load())


def simulate(kinds: Sequence[Kind], budget: int, traffic: Traffic, seed: int, max_loaded: int | None = None) -> Outcome:
    """Traffic to all of these models, where `budget` bytes are there for them."""
    loop = VirtualLoop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wakeful.memory.supervisor.monotonic", loop.time)
        patch.setattr("asyncio.get_running_loop", lambda: loop)
        try:
            return _Park(loop, kinds, budget, max_loaded, traffic, seed).run()
        finally:
            loop.close()
