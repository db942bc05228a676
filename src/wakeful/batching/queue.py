"""The requests that wait for one replica. The oldest picks the group that runs next, so no group and no size can starve."""

from collections import deque
from collections.abc import Hashable

from wakeful.inference import FOREVER, InferRequest

ALONE = 1 << 62
"""Rows that `head` reports for a request that shares its run with nobody: as good as a full batch, nothing is gained by waiting."""


class Lane:
    """The waiting requests of one group, oldest first."""

    __slots__ = ("group", "requests", "rows")

    def __init__(self, group: Hashable) -> None:
        self.group = group
        self.requests: deque[InferRequest] = deque()
        self.rows = 0


def _oldest(lane: Lane) -> float:
    return lane.requests[0].arrived


class BatchQueue:
    """Waiting requests in a lane for each group. Which lane is first is found once a batch and remembered.

    Only the event loop touches it. `group` and `rows` of a request must not change while it is here; `left` may.
    """

    __slots__ = ("rows", "_size", "_lanes", "_head", "_earliest")

    def __init__(self) -> None:
        self.rows = 0
        self._size = 0
        self._lanes: dict[Hashable, Lane] = {}
        """None of them empty, but that the last one stays when the queue runs empty: most models have one group only."""
        self._head: Lane | None = None
        """The lane of the oldest request; None: to be found again."""
        self._earliest = FOREVER

    def __len__(self) -> int:
        return self._size

    def push(self, request: InferRequest) -> None:
        """Add a request in the order of arrival. One that comes from another replica may be older than what is here."""
        lane = self._lanes.get(request.group)
        if lane is None:
            lane = self._open(request.group)
        requests = lane.requests
        if not requests or request.arrived >= requests[-1].arrived:
            requests.append(request)
        else:  # rare: it comes from another replica
            requests.insert(next(i for i, other in enumerate(requests) if other.arrived > request.arrived), request)
        if requests[0] is request and lane is not self._head:
            self._head = None
        lane.rows += request.rows
        self.rows += request.rows
        self._size += 1
        if request.deadline < self._earliest:
            self._earliest = request.deadline

    def head(self) -> tuple[int, float] | None:
        """Waiting rows of the oldest request's group (ALONE if it runs alone) and when that request arrived."""
        if not self._size:
            return None
        lane = self._head or self._find_head()
        return (ALONE if lane.group is None else lane.rows), lane.requests[0].arrived

    def take(self, max_rows: int, now: float = -FOREVER) -> tuple[list[InferRequest], list[InferRequest]]:
        """Take the next batch: whole requests of the oldest's group in order, at least one, together at most `max_rows` if more than one.

        The second list holds what was passed over because its caller has left or its deadline is not after `now`. The batch is empty only
        when nothing else waits.
        """
        batch: list[InferRequest] = []
        dropped: list[InferRequest] = []
        while self._size and not batch:
            self._take_from(self._head or self._find_head(), max_rows, now, batch, dropped)
        return batch, dropped

    def steal(self, max_rows: int) -> list[InferRequest]:
        """Take the next batch for another replica. Those whose callers have left go with it: whoever runs the batch settles them."""
        batch, left = self.take(max_rows)
        return batch + left

    def expire(self, now: float) -> list[InferRequest]:
        """Take out whatever has no one waiting for it: the caller has left, or the deadline is not after `now`. Looks at every request."""
        waiting = self.drain()
        gone: list[InferRequest] = []
        for request in waiting:
            if request.left or request.deadline <= now:
                gone.append(request)
            else:
                self.push(request)
        return gone

    def drain(self) -> list[InferRequest]:
        """Take out everything, oldest first."""
        everything = [request for lane in self._lanes.values() for request in lane.requests]
        if len(self._lanes) > 1:
            everything.sort(key=lambda request: request.arrived)
        self._lanes.clear()
        self._head = None
        self.rows = self._size = 0
        self._earliest = FOREVER
        return everything

    def next_deadline(self) -> float:
        """No deadline here is before this time. `expire` makes it exact; in between it may name one that has been taken."""
        return self._earliest

    def _open(self, group: Hashable) -> Lane:
        if not self._size:
            self._lanes.clear()
        lane = self._lanes[group] = Lane(group)
        return lane

    def _find_head(self) -> Lane:
        """Look at every lane; only called while something waits."""
        lanes = self._lanes.values()
        self._head = lane = next(iter(lanes)) if len(lanes) == 1 else min(lanes, key=_oldest)
        return lane

    def _take_from(self, lane: Lane, max_rows: int, now: float, batch: list[InferRequest], dropped: list[InferRequest]) -> None:
        requests, group = lane.requests, lane.group
        taken = removed = 0
        passed_before = len(dropped)
        for request in requests:
            rows = request.rows
            if request.left or request.deadline <= now:
                dropped.append(request)
            elif not batch or (taken + rows <= max_rows and group is not None):
                batch.append(request)
                taken += rows
            else:
                break
            removed += rows
        leaving = len(batch) + len(dropped) - passed_before
        if leaving == len(requests):
            requests.clear()
        else:
            for _ in range(leaving):
                requests.popleft()
        self._size -= leaving
        lane.rows -= removed
        self.rows -= removed
        if len(self._lanes) > 1:
            self._head = None
            if not requests:
                del self._lanes[group]
        if not self._size:
            self._earliest = FOREVER
