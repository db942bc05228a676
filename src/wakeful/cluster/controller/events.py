"""What happened, for people: Kubernetes Events. The same one again is counted, not told again, and its count is written now and then."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import uuid4

from wakeful.clock import Clock
from wakeful.cluster.controller.api import EVENT, Kind, Manifest, Refusal
from wakeful.cluster.planning.conditions import LONGEST, time_text
from wakeful.cluster.planning.effects import Note

REMEMBERED = 1000
"""Different events."""
PAUSE = 1.0
"""Seconds between two lots, of `LOT` at most."""
LOT = 20
RECOUNT = 30.0
"""Seconds between two writes of one event, whatever its count does meanwhile."""
SAME = 600.0
"""Seconds after which the same is told anew."""


class Subject(NamedTuple):
    """The object that an event is of."""

    api_version: str
    kind: str
    name: str
    uid: str


class Store(Protocol):
    async def create(self, kind: Kind, body: Manifest) -> Manifest: ...

    async def patch(self, kind: Kind, name: str, body: Manifest) -> Manifest: ...


@dataclass(slots=True)
class _Told:
    subject: Subject
    first: float
    last: float
    count: int = 1
    name: str = ""
    """Of the event in the API server; empty: not there yet."""
    written: float = 0.0


class Events:
    """`find` knows the object of a note; None: there is no such object (any more)."""

    def __init__(self, store: Store, namespace: str, find: Callable[[Note], Subject | None], *, now: Clock) -> None:
        self.dropped = 0
        """More came than could be told."""
        self._store, self._namespace, self._find, self._now = store, namespace, find, now
        self._told: dict[Note, _Told] = {}
        self._waiting: dict[Note, None] = {}

    def note(self, note: Note) -> None:
        now = self._now()
        known = self._told.get(note)
        if known is not None and now - known.first < SAME:
            known.last = now
            known.count += 1
        elif (subject := self._find(note)) is not None:
            while len(self._told) >= REMEMBERED:
                oldest = next(iter(self._told))
                del self._told[oldest]
                self.dropped += self._waiting.pop(oldest, 0) is None
            self._told.pop(note, None)
            self._told[note] = _Told(subject, now, now)
        else:
            return
        self._waiting.setdefault(note)

    async def run(self) -> None:
        while True:
            for note in self._due(self._now())[:LOT]:
                self._waiting.pop(note, None)
                if (told := self._told.get(note)) is not None:
                    with suppress(Refusal):  # an event that cannot be told is in the log
                        await self._tell(note, told)
            await asyncio.sleep(PAUSE)

    def _due(self, now: float) -> list[Note]:
        """Warnings before the rest."""
        waiting = ((note, self._told[note]) for note in self._waiting)
        due = [note for note, told in waiting if not told.name or now - told.written >= RECOUNT]
        return sorted(due, key=lambda note: note.type != "Warning")

    async def _tell(self, note: Note, told: _Told) -> None:
        told.written = self._now()
        if told.name:
            await self._store.patch(EVENT, told.name, {"count": told.count, "lastTimestamp": time_text(told.last)})
            return
        name = f"{told.subject.name}.{uuid4().hex[:16]}"
        subject = told.subject
        await self._store.create(EVENT, {
            "metadata": {"name": name, "namespace": self._namespace},
            "involvedObject": {
                "apiVersion": subject.api_version, "kind": subject.kind, "name": subject.name, "namespace": self._namespace, "uid": subject.uid,
            },
            "type": note.type, "reason": note.reason, "message": note.message[:LONGEST], "count": told.count,
            "firstTimestamp": time_text(told.first), "lastTimestamp": time_text(told.last),
            "source": {"component": "wakeful"}, "reportingComponent": "wakeful.dev/controller",
        })
        told.name = name
