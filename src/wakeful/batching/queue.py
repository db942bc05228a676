"""The requests that wait for one replica. The oldest picks the group that runs next, so no group and no size can starve."""

from collections import deque
from collections.abc import Hashable, Iterator

from wakeful.inference import FOREVER, InferRequest

ALONE = 1 << 62
"""Rows that `head` reports for a request that shares its run with nobody: as good as a full batch, nothing is gained by waiting."""


class Group:
    """The waiting requests of one group, oldest first."""

    __slots__ = ("key", "requests", "rows")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.requests: deque[InferRequest] = deque()
        self.rows = 0


def _oldest(group: Group) -> float:
    return group.requests[0].arrived


class BatchQueue:
    """Waiting requests by group. Which group is first is found once a batch and remembered.

    Only the event loop touches it. `group` and `rows` of a request must not change while it is here; `left` may.
    """

    __slots__ = ("rows", "size", "_groups", "_head", "_earliest")

    def __init__(self) -> None:
        self.rows = 0
        self.size = 0
        """Requests."""
        self._groups: dict[Hashable, Group] = {}
        """By key. None of them empty, but that the last one stays when the queue runs empty: most models have one group only."""
        self._head: Group | None = None
        """The group of the oldest request; None: to be found again."""
        self._earliest = FOREVER

    def __iter__(self) -> Iterator[InferRequest]:
        """Everything that waits, in no order."""
        return (request for group in self._groups.values() for request in group.requests)

    def push(self, request: InferRequest) -> None:
        """Add a request in the order of arrival. One that comes from another replica may be older than what is here."""
        group = self._groups.get(request.group)
        if group is None:
            group = self._open(request.group)
        requests = group.requests
        if not requests or request.arrived >= requests[-1].arrived:
            requests.append(request)
        else:  # rare: it comes from another replica
            requests.insert(next(i for i, other in enumerate(requests) if other.arrived > request.arrived), request)
        if requests[0] is request and group is not self._head:
            self._head = None
        group.rows += request.rows
        self.rows += request.rows
        self.size += 1
        if request.deadline < self._earliest:
            self._earliest = request.deadline

    def head(self) -> tuple[int, float] | None:
        """Waiting rows of the oldest request's group (ALONE if it runs alone) and when that request arrived."""
        if not self.size:
            return None
        group = self._head or self._find_head()
        return (ALONE if group.key is None else group.rows), group.requests[0].arrived

    @property
    def next_group(self) -> Hashable:
        """The group of the oldest request; None also where nothing waits."""
        return (self._head or self._find_head()).key if self.size else None

    def first(self) -> InferRequest | None:
        """The oldest request."""
        return (self._head or self._find_head()).requests[0] if self.size else None

    def take(self, max_rows: int, now: float = -FOREVER, since: float = -FOREVER) -> tuple[list[InferRequest], list[InferRequest]]:
        """Take the next batch: whole requests of the oldest's group in order, at least one, together at most `max_rows` if more than one.

        The second list holds what was passed over because its caller has left, its deadline is not after `now`, or it arrived before `since`.
        The batch is empty only when nothing else waits.
        """
        batch: list[InferRequest] = []
        dropped: list[InferRequest] = []
        while self.size and not batch:
            self._take_from(self._head or self._find_head(), max_rows, now, since, batch, dropped)
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
        everything = [request for group in self._groups.values() for request in group.requests]
        if len(self._groups) > 1:
            everything.sort(key=lambda request: request.arrived)
        self._groups.clear()
        self._head = None
        self.rows = self.size = 0
        self._earliest = FOREVER
        return everything

    def next_deadline(self) -> float:
        """No deadline here is before this time. `expire` makes it exact; in between it may name one that has been taken."""
        return self._earliest

    def _open(self, key: Hashable) -> Group:
        if not self.size:
            self._groups.clear()
        group = self._groups[key] = Group(key)
        return group

    def _find_head(self) -> Group:
        """Look at every group; only called while something waits."""
        groups = self._groups.values()
        self._head = group = next(iter(groups)) if len(groups) == 1 else min(groups, key=_oldest)
        return group

    def _take_from(
        self, group: Group, max_rows: int, now: float, since: float, batch: list[InferRequest], dropped: list[InferRequest]
    ) -> None:
        requests, key = group.requests, group.key
        taken = removed = 0
        passed_before = len(dropped)
        for request in requests:
            rows = request.rows
            if request.left or request.deadline <= now or request.arrived < since:
                dropped.append(request)
            elif batch and (key is None or taken + rows > max_rows):
                break
            elif not batch and len(dropped) > passed_before and len(self._groups) > 1:
                break  # with those gone, another group may have the oldest
            else:
                batch.append(request)
                taken += rows
            removed += rows
        leaving = len(batch) + len(dropped) - passed_before
        if leaving == len(requests):
            requests.clear()
        else:
            for _ in range(leaving):
                requests.popleft()
        self.size -= leaving
        group.rows -= removed
        self.rows -= removed
        if len(self._groups) > 1:
            self._head = None
            if not requests:
                del self._groups[key]
        if not self.size:
            self._earliest = FOREVER
