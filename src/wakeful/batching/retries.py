"""What becomes of the requests of a run that went wrong: they are tried again, alone, smaller or elsewhere, so that only the culprit fails."""

from collections.abc import Callable, Sequence
from typing import Protocol

from wakeful.batching.lane import Batch
from wakeful.batching.policy import Limits
from wakeful.errors import BY_CODE, ExecutionFailed, OutOfMemory, WakefulError
from wakeful.inference import InferRequest
from wakeful.runtime.messages import Failed

MAX_DEATHS = 2
"""Replicas that one request may take down before it is refused."""
MAX_ALLOCATION_TRIES = 2
"""Runs of one request alone that may end out of memory."""


class RetriesOwner(Protocol):
    """Who is told of runs that ended out of memory, and of requests that end processes."""

    def memory_wanted(self) -> None:
        """Free what can be freed before the next try."""

    def rows_limited(self, rows: int) -> None:
        """A run of more rows than these ended out of memory again: lower the limit, and remember it."""

    def culprit_found(self, request: InferRequest, reason: str, *, crashed: bool) -> None:
        """This request has taken down as many replicas as it may; `crashed`: by itself, and nobody did it from outside."""


class Retries:
    """Of one model. It holds nothing: a request that is tried again goes back to the queues, and `attempts` says how often."""

    def __init__(
        self,
        limits: Limits,
        owner: RetriesOwner,
        enqueue: Callable[[InferRequest], None],
        split: Callable[[InferRequest, int], None],
        refuse: Callable[[InferRequest, WakefulError], None],
    ) -> None:
        """`split` queues a request in parts of so many rows."""
        self._limits = limits
        self._owner = owner
        self._enqueue = enqueue
        self._split = split
        self._refuse = refuse

    def failed(self, batch: Batch, message: Failed) -> None:
        """The replica reported an error for this run."""
        error = BY_CODE.get(message.kind, ExecutionFailed)(message.reason)
        if isinstance(error, OutOfMemory):
            self._smaller(batch, error)
        else:
            self.alone(batch.requests, error)

    def alone(self, requests: Sequence[InferRequest], error: WakefulError) -> None:
        """Members of a merged run are tried one by one; a request that was alone has failed."""
        if len(requests) == 1:
            self._refuse(requests[0], error)
            return
        for request in requests:
            request.begun, request.group = True, None
            self._enqueue(request)

    def lost(self, requests: Sequence[InferRequest], reason: str, *, begun: bool, out_of_memory: bool, crashed: bool) -> None:
        """Their replica died. If it had begun their run, each runs again alone, and one that keeps killing replicas is refused."""
        for request in requests:
            if request.settled:
                continue
            if begun:
                request.deaths += 1
                request.begun, request.group = True, None
            if not begun or request.deaths < MAX_DEATHS:
                self._enqueue(request)
                continue
            self._owner.culprit_found(request, reason, crashed=crashed)
            if out_of_memory:
                self._refuse(request, OutOfMemory(f"out of memory: {reason}, {request.deaths} times for this request"))
            else:
                self._refuse(request, ExecutionFailed(f"{reason}, {request.deaths} times while it ran this request"))

    def _smaller(self, batch: Batch, error: OutOfMemory) -> None:
        """Have memory freed and try once more; after that with half the rows, and remember what is safe."""
        self._owner.memory_wanted()
        again = any(request.attempts for request in batch.requests)
        if again and batch.rows > 1:  # one row that does not fit says nothing about how many others do
            self._owner.rows_limited(batch.rows // 2)
        merged = len(batch.requests) > 1
        for request in batch.requests:
            attempts, request.attempts, request.begun = request.attempts + 1, 1, True
            if again and request.group is not None and request.rows > self._limits.max_rows:
                self._split(request, self._limits.max_rows)
            elif merged or attempts < MAX_ALLOCATION_TRIES:
                self._enqueue(request)
            else:
                self._refuse(request, error)
