"""What was learnt about models, kept across restarts: a model is asked once what it takes, measured once, tested once.

One file in the cache directory. Daemons that share it each add what they learn; nothing in it is precious.
"""

import fcntl
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec

from wakeful import clock
from wakeful.prepared import durable
from wakeful.runtime.messages import Signature, Verdict

FORMAT = 1
"""Goes up when an entry comes to mean something else."""

LIMIT = 10_000
"""Entries; about a kilobyte each."""

_log = logging.getLogger(__name__)


class Known(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one state of a model's files under one version of its library. Defaults mean: not known."""

    signature: Signature | None = None
    verdict: Verdict | None = None
    first_bytes: int = 0
    """Private and mapped memory of a single replica."""
    extra_bytes: int = 0
    """Private memory of a further one."""
    lone_seconds: dict[int, float] = msgspec.field(default_factory=dict)
    """Threads to seconds of a run of one row."""
    safe_rows: int = 0
    """Most rows that a run had memory for, once one ran out of it."""


class Lesson(TypedDict, total=False):
    """Fields of Known; `lone_seconds` adds to what is known, all others replace it."""

    signature: Signature | None
    verdict: Verdict | None
    first_bytes: int
    extra_bytes: int
    lone_seconds: dict[int, float]
    safe_rows: int


class _Entry(msgspec.Struct, array_like=True):
    used: float
    """Seconds since 1970."""
    known: Known


class _File(msgspec.Struct, frozen=True, array_like=True):
    program: str
    format: int
    entries: dict[str, _Entry]


class Knowledge:
    """`recall` and `learn` belong to the event loop and touch no file; `save` blocks and is meant for a thread."""

    def __init__(self, directory: Path, *, limit: int = LIMIT, now: Callable[[], float] = clock.wall) -> None:
        self._path = directory / "knowledge.msgpack"
        self._limit = limit
        self._now = now
        self._entries = _newest(self._read(), limit)
        """Least recently used first."""
        self._unsaved: set[str] = set()
        self._warned = False

    @property
    def dirty(self) -> bool:
        """Is there something to save?"""
        return bool(self._unsaved)

    def recall(self, identity: str, library: str) -> Known | None:
        key = _key(identity, library)
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._entries[key] = _Entry(self._now(), entry.known)
        return entry.known

    def learn(self, identity: str, library: str, **fields: Unpack[Lesson]) -> None:
        """Add to what is known. Raises TypeError for a field that Known does not have."""
        key = _key(identity, library)
        entry = self._entries.pop(key, None)
        old = entry.known if entry else Known()
        if "lone_seconds" in fields:
            fields["lone_seconds"] = old.lone_seconds | fields["lone_seconds"]
        new = msgspec.structs.replace(old, **fields)
        self._entries[key] = _Entry(self._now(), new)
        if new != old:
            self._unsaved.add(key)
        while len(self._entries) > self._limit:
            del self._entries[next(iter(self._entries))]

    def save(self) -> None:
        """Write what was learnt since the last time, beside what other daemons have written. What cannot be written now waits for the next call."""
        unsaved, self._unsaved = self._unsaved, set()  # in this order: what is learnt from here on is for the next time
        entries = dict(self._entries)
        if not unsaved:
            return
        try:
            saved = self._write(entries, unsaved)
        except OSError as error:
            saved = False
            if not self._warned:
                self._warned = True
                _log.warning("what is learnt about models is lost at exit: %s", error)
        if not saved:
            self._unsaved |= unsaved

    def _write(self, entries: dict[str, _Entry], unsaved: set[str]) -> bool:
        """False when another daemon is writing: waiting could take for ever if it is stopped."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            for key, theirs in self._read().items():
                ours = entries.get(key)
                if key not in unsaved or ours is None:
                    entries[key] = _Entry(max(theirs.used, ours.used if ours else 0.0), theirs.known)
            content = _File("wakeful", FORMAT, _newest(entries, self._limit))
            durable.replace(self._path, msgspec.msgpack.encode(content), draft=self._path.with_suffix(".new"))
        return True

    def _read(self) -> dict[str, _Entry]:
        """Nothing when the file is missing, broken or somebody else's."""
        with suppress(OSError, msgspec.MsgspecError):
            content = msgspec.msgpack.decode(self._path.read_bytes(), type=_File)
            if (content.program, content.format) == ("wakeful", FORMAT):
                return content.entries
        return {}


def _key(identity: str, library: str) -> str:
    return f"{identity} {library}"


def _newest(entries: dict[str, _Entry], limit: int) -> dict[str, _Entry]:
    """The `limit` entries that were used last, oldest first."""
    chosen = sorted(entries.items(), key=lambda item: item[1].used)
    return dict(chosen[-limit:])
