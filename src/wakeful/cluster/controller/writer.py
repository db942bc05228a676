"""Statuses on their way to the API server: at most one a second of each object, and no more in all than the API server should bear.

A status is made when it is written: of a thousand that change ten times a second no more are made than can be sent.

What is waited for, a target before agents are told, does not queue here: `write_ahead`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from wakeful.clock import Clock, monotonic
from wakeful.cluster.controller.api import FORBIDDEN, NOT_FOUND, UNREACHED, Kind, Manifest, Refusal, unreachable_or

Status = Mapping[str, Any]

SPACING = 1.0
"""Seconds between two writes of one object."""
RATE = 50.0
"""Writes a second, of all objects."""
AT_ONCE = 4
"""Writes under way."""
AHEAD_WITHIN = 2.0
"""Seconds that the loop waits for a target to be written."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0


class Key(NamedTuple):
    kind: Kind
    name: str


class Queue:
    """Whose status is to be written next. Pure: who calls says what time it is."""

    def __init__(self, spacing: float = SPACING, rate: float = RATE) -> None:
        self._spacing, self._gap = spacing, 1.0 / rate
        self._waiting: dict[Key, None] = {}
        self._written: dict[Key, float] = {}
        self._next = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Key) -> None:
        self._waiting.setdefault(key)

    def discard(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self._written.pop(key, None)

    def charge(self, key: Key, now: float) -> None:
        """It is written past the queue: others wait for that, too."""
        self._written[key] = now
        self._next = max(self._next, now) + self._gap

    def give_back(self, key: Key) -> None:
        """It was taken, and there was nothing to write."""
        self._written.pop(key, None)
        self._next -= self._gap

    def take(self, now: float) -> Key | float | None:
        """The one that has waited longest among those that may be written now, or seconds until one may be; None: nobody waits."""
        if not self._waiting:
            return None
        if now < self._next:
            return self._next - now
        soonest = min(self._due(key) for key in self._waiting)
        if soonest > now:
            return soonest - now
        key = next(key for key in self._waiting if self._due(key) <= now)
        del self._waiting[key]
        self._written[key] = now
        self._next = now + self._gap
        return key

    def _due(self, key: Key) -> float:
        return self._written.get(key, float("-inf")) + self._spacing


def difference(stored: Status, wanted: Status) -> dict[str, Any]:
    """The merge patch of the top-level keys that differ; one that is not wanted any more is None. Below them a value is replaced as a whole, which a
    merge patch does to lists, and which `_replaced` does to maps."""
    changed = {key: _replaced(stored.get(key), value) for key, value in wanted.items() if stored.get(key) != value}
    return changed | {key: None for key in stored if key not in wanted}


def _replaced(stored: Any, wanted: Any) -> Any:
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        return {**dict.fromkeys(stored), **wanted}
    return wanted


class Store(Protocol):
    async def patch(self, kind: Kind, name: str, body: Manifest, *, status: bool = False) -> Manifest: ...


class Writer:
    """The only one who writes statuses. `may_write` is asked before each: a process that is not the leader any more does not know it at once."""

    def __init__(
        self, store: Store, make: Callable[[Key], Status | None], may_write: Callable[[], bool], complain: Callable[[str], None],
        queue: Queue | None = None, *, now: Clock = monotonic,
    ) -> None:
        """`make` tells what an object's status should be; None: it has none any more."""
        self.written = 0
        self.failed = 0
        self._store, self._make, self._may_write, self._complain, self._now = store, make, may_write, complain, now
        self._queue = Queue() if queue is None else queue
        self._stored: dict[Key, Status] = {}
        self._versions: dict[Key, int] = {}
        self._locks: dict[Key, asyncio.Lock] = {}
        self._news = asyncio.Event()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def latest(self, key: Key) -> Status:
        """What is in the API server, as far as is known; {}: nothing."""
        return self._stored.get(key) or {}

    def observed(self, key: Key, version: str, status: Status) -> None:
        """What the API server has. If somebody else has written it, it is written again."""
        if int(version) <= self._versions.get(key, 0):
            return
        self._versions[key] = int(version)
        if self._stored.get(key) != status:
            self._stored[key] = status
            self.touch(key)

    def touch(self, key: Key) -> None:
        """Its status may have to be another."""
        self._queue.add(key)
        self._news.set()

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._queue.discard(key)
        for known in (self._stored, self._versions, self._locks):
            known.pop(key, None)

    async def write_ahead(self, key: Key, status: Status) -> bool:
        """Write it now. False: it is not written, and what depends on it must not be done."""
        if not self._may_write():
            return False
        self._queue.charge(key, self._now())
        try:
            await unreachable_or(self._write(key, status), AHEAD_WITHIN)
        except Refusal as error:
            self.failed += 1
            self._complain(f"{key.kind.kind} {key.name}: its target could not be written, and is not followed: {error}")
            return False
        return True

    async def run(self) -> None:
        """Write what is to be written, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        failures = 0
        while True:
            taken = self._queue.take(self._now())
            if not isinstance(taken, Key):
                self._news.clear()
                await _heard(self._news, taken)
                continue
            try:
                status = self._make(taken)
                if status is None or not await self._write(taken, status):
                    self._queue.give_back(taken)
                    await asyncio.sleep(0)
                failures = 0
            except Refusal as error:
                self.failed += 1
                failures += 1
                if not self._is_final(taken, error):
                    self.touch(taken)
                    await asyncio.sleep(min(FIRST_PAUSE * 2.0 ** (failures - 1), LONGEST_PAUSE))

    async def _write(self, key: Key, status: Status) -> bool:
        """Was there anything to write?"""
        async with self._locks.setdefault(key, asyncio.Lock()):
            patch = difference(self.latest(key), status)
            if not patch or not self._may_write():
                return False
            answer = await self._store.patch(key.kind, key.name, {"status": patch}, status=True)
            self.written += 1
            if key in self._locks:  # not forgotten meanwhile
                self._stored[key], self._versions[key] = status, int(answer["metadata"]["resourceVersion"])
            return True

    def _is_final(self, key: Key, error: Refusal) -> bool:
        """Writing the same again would be refused again."""
        if error.code in {UNREACHED, 429} or error.code >= 500:
            return False
        if error.code != NOT_FOUND:
            hint = "; wakeful cluster manifests has the rights that it needs" if error.code == FORBIDDEN else ""
            self._complain(f"the status of {key.kind.kind} {key.name} is refused: {error}{hint}")
        return True


async def _heard(news: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        pass
