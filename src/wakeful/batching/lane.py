"""The lane of one ready replica: what waits for it, and what it runs."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from wakeful.batching import policy
from wakeful.batching.costs import CostModel
from wakeful.batching.queue import BatchQueue
from wakeful.inference import InferRequest
from wakeful.runtime.arena import Slot
from wakeful.runtime.messages import Placement


class Runner(Protocol):
    """What a lane needs of a replica."""

    @property
    def slots(self) -> Sequence[Slot]: ...

    def run(self, run: int, slot: int, end: int, inputs: tuple[Placement, ...]) -> None: ...


class Batch:
    """One run: its requests, and where it lies."""

    __slots__ = ("common", "requests", "rows", "slot")

    def __init__(self, requests: list[InferRequest], rows: int, slot: int, common: int | None = None) -> None:
        self.requests = requests
        self.rows = rows
        self.slot = slot
        self.common = common
        """Length to which its inputs were filled up, where they are."""

    @property
    def forsaken(self) -> bool:
        """Nobody waits for any of its answers."""
        return all(request.settled or request.left for request in self.requests)


class Lane:
    """State alone; the batcher, which owns all lanes of a model, is its only writer. `stealing` acts on its behalf."""

    __slots__ = ("active", "closed", "doubted", "free", "full_at", "queue", "replica", "running", "scheduled", "since", "timer")

    def __init__(self, replica: Runner) -> None:
        self.replica = replica
        self.queue = BatchQueue()
        self.running: deque[tuple[int, Batch]] = deque()
        self.free = list(range(len(replica.slots)))
        self.active = 0
        """Requests in running batches."""
        self.closed = False
        self.scheduled = False
        self.full_at = 0.0
        """Waiting rows below which it is of no use to look whether a batch is due: while one runs, only much is sealed ahead."""
        self.since = 0.0
        """When the run at the head of `running` began."""
        self.doubted = 0
        """The run that is watched because nobody waits for it any more."""
        self.timer: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        return bool(self.running or self.queue.size)

    def busy_for(self, now: float, costs: CostModel) -> float:
        """Seconds until what it runs has ended, as far as run times are known."""
        left, elapsed = 0.0, now - self.since
        for _, batch in self.running:
            left += policy.remaining(batch.rows, elapsed, costs)
            elapsed = 0.0
        return left

    @property
    def load(self) -> tuple[int, int]:
        """(waiting requests, running requests): what routing compares."""
        return self.queue.size, self.active

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
