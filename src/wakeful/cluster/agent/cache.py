"""The cache of fetched models on disk. Several pods may share a directory.

    <digest>/        an artifact: `files/…` as they were in the store, manifest.json (its modification time is the last use), and `lock`, which is
                     locked shared by each daemon that uses it
    states/<digest>  which artifact a URI was in a certain state of its store, so that what has not changed is not fetched again
    work-…/          one fetch under way; `lock` inside is locked as long as its process lives, `bytes` says how much it will be
    turns            a byte of it is locked for each URI: one fetch of it at a time
    room             locked while it is decided who goes. Another file, for to close one gives up all locks that the process has on it

An artifact's revision is the digest of its content, whatever the store says of it. It appears and vanishes whole, by a rename, and is never changed.
What is missing or broken is fetched again. Everything here blocks.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from wakeful.prepared import durable, work
from wakeful.telemetry.units import show_bytes

MANIFEST = "manifest.json"
_ALGORITHM = "sha256:"
_KEY = re.compile(r"[0-9a-f]{64}")
_MOST_STATES = 10_000


class NoRoom(Exception):
    """The artifact does not fit, whoever of those that are not in use went."""


class Manifest(msgspec.Struct, frozen=True):
    """What an artifact is."""

    uri: str
    """Where it was found first, for people who look into the cache."""
    name: str
    """Of what is the model, if not all of it is: the one file."""
    files: dict[str, int]
    """Path below `files` to size in bytes."""

    @property
    def nbytes(self) -> int:
        return sum(self.files.values())


class Kept(NamedTuple):
    """An artifact as the decision on room sees it."""

    key: str
    nbytes: int
    last_used: float
    in_use: bool


def to_evict(kept: Sequence[Kept], excess: int) -> list[Kept] | None:
    """Whom to remove so that `excess` bytes become free: the least recently used first, nobody who is in use. None if all of them do not suffice."""
    chosen = []
    for artifact in sorted((one for one in kept if not one.in_use), key=lambda one: one.last_used):
        if excess <= 0:
            break
        chosen.append(artifact)
        excess -= artifact.nbytes
    return chosen if excess <= 0 else None


class Use:
    """An artifact that stays as long as this is not released, or this process lives."""

    def __init__(self, path: Path, revision: str, nbytes: int, descriptor: int) -> None:
        self.path = path
        """The file or the directory that was fetched."""
        self.revision = revision
        self.nbytes = nbytes
        self._descriptor = descriptor

    def release(self) -> None:
        """It may be evicted from now on. To release it twice is to release it once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@dataclass(frozen=True)
class Draft:
    """A place for what is being fetched."""

    home: Path

    @property
    def files(self) -> Path:
        return self.home / "artifact" / "files"

    @property
    def scratch(self) -> Path:
        """For what is taken apart on the way."""
        return self.home / "scratch"


class Cache:
    def __init__(self, directory: Path, limit: int | None = None) -> None:
        """`limit`: bytes of all artifacts together; None: what the file system has."""
        self.directory = directory
        self.limit = limit
        self._states = directory / "states"

    def sweep(self) -> None:
        """Make the directory if it is not there, and remove what fetches have left that died half-way."""
        self._states.mkdir(mode=0o700, parents=True, exist_ok=True)
        work.clear_dead(self.directory)

    # ── finding ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def use(self, revision: str) -> Use | None:
        """The artifact, if it is here whole. Notes its use."""
        home = self.directory / _key_of(revision)
        descriptor = work.lock(home, shared=True)
        if descriptor is None:
            return None
        manifest = _intact(home)
        if manifest is None:
            os.close(descriptor)
            return None
        with suppress(OSError):  # another user's cache is a good cache
            os.utime(home / MANIFEST)
        return Use(home / "files" / manifest.name, revision, manifest.nbytes, descriptor)

    def known(self, uri: str, state: str) -> str | None:
        """The revision that `uri` had in this state of its store, whether it is still here or not."""
        with suppress(OSError):
            key = self._state(uri, state).read_text(errors="replace")
            if _KEY.fullmatch(key):  # else it was cut short
                return _ALGORITHM + key
        return None

    def has(self, revision: str) -> bool:
        return _intact(self.directory / _key_of(revision)) is not None

    # ── fetching ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def turn(self, uri: str) -> Iterator[None]:
        """Wait until no other process fetches this URI into the cache."""
        with self._alone("turns", int.from_bytes(hashlib.sha256(uri.encode()).digest()[:6])):
            yield

    @contextmanager
    def draft(self, nbytes: int) -> Iterator[Draft]:
        """A place for so many bytes, for which others have gone if they had to. Raises NoRoom."""
        home, descriptor = work.make(self.directory)
        try:
            with self._alone("room"):
                self._make_room(nbytes)
                (home / "bytes").write_text(str(nbytes))
            draft = Draft(home)
            draft.files.mkdir(parents=True)
            draft.scratch.mkdir()
            yield draft
        finally:
            shutil.rmtree(home, ignore_errors=True)
            os.close(descriptor)

    def keep(self, draft: Draft, uri: str, name: str) -> str:
        """Put it among the artifacts and return its revision. `name`: of what in it is the model, if not all is."""
        home = draft.files.parent
        key, files = _read_all(draft.files)
        durable.write(home / MANIFEST, msgspec.json.format(msgspec.json.encode(Manifest(uri, name, files))))
        _sync_directories(home)
        place = self.directory / key
        if _intact(place) is None:
            self._remove(key)
            with suppress(OSError):  # another process brought the same bytes from elsewhere just now
                home.rename(place)
            if _intact(place) is None:
                raise FileExistsError(f"{place} is broken and cannot be replaced")
            durable.sync(self.directory)
        return _ALGORITHM + key

    def note(self, uri: str, state: str, revision: str, draft: Draft) -> None:
        """Remember what `uri` is in this state of its store."""
        if sum(1 for _ in self._states.iterdir()) >= _MOST_STATES:
            for old in list(self._states.iterdir()):
                old.unlink(missing_ok=True)
        durable.replace(self._state(uri, state), _key_of(revision).encode(), draft.scratch / "state")

    def _make_room(self, needed: int) -> None:
        kept = [_seen(path) for path in self.directory.iterdir() if _KEY.fullmatch(path.name)]
        coming = sum(_expected(path) for path in work.under_way(self.directory))
        free = shutil.disk_usage(self.directory).free
        excess = needed - free
        if self.limit is not None:
            excess = max(excess, sum(one.nbytes for one in kept) + coming + needed - self.limit)
        chosen = to_evict(kept, excess)
        if chosen is None:
            used = [one for one in kept if one.in_use]
            limit = "" if self.limit is None else f", of its {show_bytes(self.limit)}"
            raise NoRoom(
                f"{show_bytes(needed)} do not fit into the cache {self.directory}: {show_bytes(sum(one.nbytes for one in used))} are in use by "
                f"{len(used)} models{limit}, {show_bytes(coming)} are being fetched, and the disk has {show_bytes(free)} free; raise the "
                f"Server's cache.size, or give it a larger volume"
            )
        for one in chosen:
            self._remove(one.key)

    def _remove(self, key: str) -> None:
        """Unless somebody uses it. Others see it vanish at once."""
        home = self.directory / key
        descriptor = work.lock(home)
        if descriptor is None:
            return
        grave, grave_lock = work.make(self.directory)
        try:
            home.rename(grave / key)
            os.close(descriptor)
            shutil.rmtree(grave, ignore_errors=True)
        finally:
            os.close(grave_lock)

    @contextmanager
    def _alone(self, file: str, byte: int = 0) -> Iterator[None]:
        """While no other process has this byte of the file."""
        with (self.directory / file).open("ab") as locked:
            fcntl.lockf(locked, fcntl.LOCK_EX, 1, byte)
            yield  # closing the file unlocks it

    def _state(self, uri: str, state: str) -> Path:
        return self._states / hashlib.sha256(f"{uri}\0{state}".encode()).hexdigest()


def _key_of(revision: str) -> str:
    """Raises ValueError for what is no revision."""
    key = revision.removeprefix(_ALGORITHM)
    if not _KEY.fullmatch(key):
        raise ValueError(f"an artifact's revision is {_ALGORITHM} and 64 hexadecimal digits, not {revision[:80]!r}")
    return key


def _intact(home: Path) -> Manifest | None:
    """What the artifact is, if all of its files are there in full length."""
    try:
        manifest = msgspec.json.decode((home / MANIFEST).read_bytes(), type=Manifest)
        whole = all((home / "files" / name).lstat().st_size == size for name, size in manifest.files.items())
    except (OSError, ValueError, msgspec.MsgspecError):  # ValueError: a name with a NUL
        return None
    return manifest if whole and manifest.files else None


def _seen(home: Path) -> Kept:
    descriptor = work.lock(home)
    if descriptor is not None:
        os.close(descriptor)
    manifest = _intact(home)
    try:
        last_used = (home / MANIFEST).stat().st_mtime
    except OSError:
        last_used = 0.0
    return Kept(home.name, manifest.nbytes if manifest else 0, last_used, descriptor is None)


def _expected(home: Path) -> int:
    """Bytes that a fetch under way has said it will bring."""
    try:
        return int((home / "bytes").read_text())
    except (OSError, ValueError):
        return 0


def _read_all(directory: Path) -> tuple[str, dict[str, int]]:
    """The digest of all files' names and content, and their sizes. Each is on the disk afterwards."""
    whole, sizes = hashlib.sha256(), {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            name = path.relative_to(directory).as_posix()
            sizes[name] = os.fstat(file.fileno()).st_size
        whole.update(f"{name}\0{sizes[name]}\0{content}\n".encode())
    return whole.hexdigest(), sizes


def _sync_directories(home: Path) -> None:
    for directory, _, _ in os.walk(home, topdown=False):
        durable.sync(Path(directory))
