"""The real batcher under simulated load: callers who arrive at given moments, and replicas whose runs take what a table says.

Its clock jumps, so that hours of load take seconds and the same run comes out the same again. What it leaves out is what the machine does: two
replicas and the daemon that share two cores; of others who use it too, a rough picture (`shared`).
"""

import asyncio
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from tests.batching.stage import VirtualLoop
from wakeful.batching.batcher import Batcher
from wakeful.batching.lane import Lane
from wakeful.config.settings import BatchingSettings
from wakeful.errors import WakefulError
from wakeful.inference import InferRequest
from wakeful.replicas.routing import Router
from wakeful.runtime.arena import Slot
from wakeful.runtime.messages import Done, Placement
from wakeful.telemetry.metrics import ModelStats
from wakeful.tensors import Tensor

Cost = Callable[[int], float]
"""Seconds of a run of so many rows."""
Pace = Callable[[float], float]
"""How many times as long as usual does a run take that is given at this moment, in seconds from the beginning?"""

ROW = (Tensor("x", "FP32", (1, 1), bytes(4)),)


def linear(fixed: float, per_row: float) -> Cost:
    return lambda rows: fixed + per_row * rows


def measured(milliseconds: dict[int, float]) -> Cost:
    """What runs of some sizes were measured to take; between them and behind the last in a straight line."""
    sizes, times = list(milliseconds), [value / 1e3 for value in milliseconds.values()]
    slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
    table = [0.0, *np.interp(range(1, sizes[-1] + 1), sizes, times).tolist()]
    return lambda rows: table[rows] if rows < len(table) else table[-1] + slope * (rows - len(table) + 1)


MODELS: dict[str, Cost] = {
    "tiny": linear(60e-6, 1e-6),
    "small": linear(0.3e-3, 0.7e-3),
    "encoder": measured({1: 6.7, 2: 9.2, 4: 13.2, 6: 17.6, 8: 22.5, 12: 32.4, 16: 45.0, 24: 68.3, 32: 95.0}),
    "magika": measured({1: 7.0, 2: 13.4, 4: 26.2, 6: 42.0, 8: 58.0, 12: 92.8, 16: 130.0, 24: 210.0, 32: 290.0}),
    "resnet": linear(1.5e-3, 54e-3),
    "gpu resnet": linear(4e-3, 0.25e-3),
}
"""The bench's models as measured with one thread on a machine of two cores, and two in whose runs one part dominates."""

HANDOVER = 0.0002
"""Seconds from sealing a run to its beginning in an idle replica, roughly as measured. A run that was sealed ahead begins at once."""
LARGEST = 32
"""Rows of the largest batch of the grid."""


def capacity(cost: Cost) -> float:
    """Rows a second of one replica at its best size of batch."""
    return max(rows / cost(rows) for rows in range(1, LARGEST + 1))


class Caller(InferRequest, kw_only=True):
    outcome: "Outcome"
    clock: VirtualLoop

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        self.outcome.answered(self.arrived, self.clock.now - self.arrived)

    def refuse(self, error: WakefulError) -> None:
        self.outcome.refused.append(error)


@dataclass
class Outcome:
    """What became of the callers who came after the beginning: the first tenth."""

    begin: float
    latencies: list[float] = field(default_factory=list)
    refused: list[WakefulError] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    """Rows of each run."""
    wall: float = 0.0

    def answered(self, arrived: float, seconds: float) -> None:
        if arrived >= self.begin:
            self.latencies.append(seconds)

    @property
    def p99(self) -> float:
        return float(np.percentile(self.latencies, 99)) if self.latencies else float("inf")

    @property
    def mean(self) -> float:
        return statistics.fmean(self.latencies)

    def within(self, seconds: float) -> float:
        """Answers a second that took at most so long."""
        return sum(latency <= seconds for latency in self.latencies) / self.wall


class Machine:
    """A replica whose runs take what the table says, one after the other."""

    def __init__(self, batcher: Batcher, cost: Cost, pace: Pace, outcome: Outcome) -> None:
        self.slots = [Slot.create(), Slot.create()]
        self.lane: Lane
        self._batcher, self._cost, self._pace, self._outcome = batcher, cost, pace, outcome
        self._given: deque[tuple[int, tuple[Placement, ...], float]] = deque()
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    def run(self, run: int, slot: int, end: int, inputs: tuple[Placement, ...]) -> None:
        rows = inputs[0].shape[0]
        self._outcome.runs.append(rows)
        self._given.append((run, inputs, self._cost(rows) * self._pace(self._loop.time() - self._began)))
        if len(self._given) == 1:
            self._begin(HANDOVER)

    def _begin(self, after: float) -> None:
        run, inputs, seconds = self._given[0]
        self._loop.call_later(after + seconds, self._end, Done(run, seconds, inputs))

    def _end(self, done: Done) -> None:
        self._given.popleft()
        if self._given:
            self._begin(0.0)
        self._batcher.done(self.lane, done)


class _Owner:
    """A model that does nothing but serve."""

    def lane_idle(self, lane: Lane) -> None: ...

    def memory_wanted(self) -> None: ...

    def lane_stuck(self, lane: Lane, seconds: float) -> None: ...

    def lane_broken(self, lane: Lane) -> None: ...

    def rows_limited(self, rows: int) -> None: ...

    def culprit_found(self, request: InferRequest, reason: str, *, crashed: bool) -> None: ...


Admit = Callable[[InferRequest, Batcher], None]
"""Raises the refusal of a request that is not taken."""


def alone(now: float) -> float:
    """A machine that nobody else uses."""
    return 1.0


def shared(seed: int) -> Pace:
    """A machine that others use too: twice as slow in a fifth of all seconds, no two runs alike, one in 300 three times as long; 1.2 on average."""
    random = Random(seed)
    slow = [random.random() < 0.2 for _ in range(1000)]

    def pace(now: float) -> float:
        return (2.0 if slow[int(now) % len(slow)] else 1.0) * random.lognormvariate(0.0, 0.1) * (3.0 if random.random() < 0.003 else 1.0)

    return pace


def simulate(
    cost: Cost, arrivals: Sequence[float], settings: BatchingSettings, replicas: int = 1, admit: Admit | None = None, pace: Pace = alone,
) -> Outcome:
    """Serve callers of one row who arrive at these moments, in seconds from the beginning."""
    loop = VirtualLoop()
    outcome = Outcome(loop.now + 0.1 * arrivals[-1], wall=0.9 * arrivals[-1])
    with pytest.MonkeyPatch.context() as patch:
        for module in ("batcher", "settling"):
            patch.setattr(f"wakeful.batching.{module}.monotonic", loop.time)
        try:
            loop.run_until_complete(_play(loop, cost, arrivals, settings, replicas, admit, pace, outcome))
        finally:
            loop.close()
    return outcome


async def _play(
    loop: VirtualLoop, cost: Cost, arrivals: Iterable[float], settings: BatchingSettings, replicas: int, admit: Admit | None, pace: Pace,
    outcome: Outcome,
) -> None:
    batcher = Batcher(settings, Router("least-queue").choose, ModelStats("m"), _Owner())
    for _ in range(replicas):
        machine = Machine(batcher, cost, pace, outcome)
        machine.lane = batcher.open(machine)
    began, coming = loop.now, iter(arrivals)
    ended = loop.create_future()

    def arrive(moment: float) -> None:
        request = Caller("m", ROW, loop.now, group="g", outcome=outcome, clock=loop)
        try:
            if admit is not None:
                admit(request, batcher)
            batcher.submit(request)
        except WakefulError as error:
            outcome.refused.append(error)
        following = next(coming, None)
        if following is None:
            ended.set_result(None)
        else:
            loop.call_at(began + following, arrive, following)

    first = next(coming)
    loop.call_at(began + first, arrive, first)
    await ended
    while batcher.busy or batcher.waiting:  # noqa: ASYNC110 - time jumps
        await asyncio.sleep(0.01)
