"""The cache of prepared models on disk. Several daemons may share a directory.

    <key>/              a copy: what the backend wrote, and manifest.json; its modification time is the copy's last use
    index/<identity>-…  the key of the copy for that state of a model's files, so that finding it needs no hash
    work-…/             one daemon's unfinished copies; `lock` inside is locked as long as the daemon lives

A copy appears and vanishes whole, by a rename, and is never changed. Nothing here is precious: what is missing or broken is made again.
"""

import errno
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import msgspec

from wakeful import clock
from wakeful.prepared import durable, work
from wakeful.prepared.identity import content_hash, cpu_features, data_elsewhere, digest, identity_of

FORMAT = 2
"""Goes up when a backend writes its copies in another way."""

TOUCH_EVERY = 3600.0
"""Seconds between two notes of a copy's use; more often would only wear the disk."""

MANIFEST = "manifest.json"
_TRIES = 5
"""Of what another daemon may spoil at any moment."""
_KEY = re.compile(r"[0-9a-f]{32}")

_log = logging.getLogger(__name__)


class Manifest(msgspec.Struct, frozen=True):
    """What a copy is, and for whom."""

    format: int
    backend: str
    library: str
    cpu: str
    model: str
    """Where the model was, for people who look into the cache."""
    files: dict[str, int]
    """Name to size in bytes."""


class _Copy(NamedTuple):
    path: Path
    last_used: float
    nbytes: int


class PreparedCache:
    """`find` and `begin` are quick; everything else blocks and is meant for a thread. The constructor clears away what dead daemons left.

    A directory that cannot be written is warned of once; from then on nothing is prepared, but copies that are there are still found.
    """

    def __init__(self, directory: Path, limit: int, *, cpu: str | None = None, now: Callable[[], float] = clock.wall) -> None:
        self.directory = directory
        self.limit = limit
        """Bytes of all copies together."""
        self.writable = True
        self._cpu = cpu_features() if cpu is None else cpu
        self._now = now
        self._index = directory / "index"
        self._work: Path | None = None
        self._lock = -1
        self._making_work = threading.Lock()
        with self._warned_once():
            self._make_directories()
            work.clear_dead(self.directory)

    # ── finding ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, identity: str, backend: str, library: str) -> Path | None:
        """The directory of an intact copy that was made for this backend, library and processor, and note its use."""
        key = _read_key(self._entry(identity, backend, library))
        return self._intact(key, backend, library) if key else None

    def adopt(self, model: Path, identity: str, backend: str, library: str) -> Path | None:
        """As `find`, but looks at the content: a model that was only moved, copied or touched gets its old copy back."""
        content = _content(model, identity)
        if content is None:
            return None
        key = self._key(content, backend, library)
        copy = self._intact(key, backend, library)
        if copy is not None:
            with self._warned_once():
                self._enter(identity, backend, library, key)
        return copy

    def _intact(self, key: str, backend: str, library: str) -> Path | None:
        copy = self.directory / key
        path = copy / MANIFEST
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
            if (manifest.format, manifest.backend, manifest.library, manifest.cpu) != (FORMAT, backend, library, self._cpu):
                return None
            if not manifest.files or any((copy / name).stat().st_size != size for name, size in manifest.files.items()):
                return None
            used, now = path.stat().st_mtime, self._now()
        except (OSError, ValueError, msgspec.MsgspecError):  # ValueError: a name with a NUL
            return None
        if abs(now - used) >= TOUCH_EVERY:  # abs: the clock may have been wrong when it was made
            with suppress(OSError):  # a read-only cache is a good cache
                os.utime(path, (now, now))
        return copy

    # ── making ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> Path | None:
        """An empty directory for a backend to write a copy into; None when the cache cannot be written. To be committed or discarded."""
        if not self.writable:
            return None
        with self._warned_once():
            return Path(mkdtemp(dir=self._own_work()))
        return None

    def commit(self, temporary: Path, model: Path, identity: str, backend: str, library: str) -> Path | None:
        """Make what lies in `temporary` the copy of the model whose identity was `identity` when its preparation began.

        None when it must not be used: the model has been replaced meanwhile, keeps weights where their change would not be noticed, or the
        cache cannot be written. There is no use in another try before the identity changes. `temporary` is gone afterwards.
        """
        copy = None
        content = _content(model, identity)
        with self._warned_once():
            files = {path.name: path.stat().st_size for path in temporary.iterdir() if path.is_file()}
            if content is not None and files:
                _seal(temporary, Manifest(FORMAT, backend, library, self._cpu, str(model), files))
                copy = self._place(temporary, self._key(content, backend, library), backend, library)
        self.discard(temporary)
        if copy is not None:
            with self._warned_once():
                self._enter(identity, backend, library, copy.name)
                self._make_room(copy)
        return copy

    def discard(self, temporary: Path) -> None:
        """Give up what `begin` gave."""
        shutil.rmtree(temporary, ignore_errors=True)

    def forget(self, identity: str) -> None:
        """Remove the copies of this state of a model, because a load of one failed."""
        with self._warned_once():
            for entry in list(self._index.glob(f"{identity}-*")):
                key = _read_key(entry)
                entry.unlink(missing_ok=True)
                if key:
                    self._remove(self.directory / key)

    def close(self) -> None:
        """Remove what is unfinished. A daemon that dies without it leaves that to the next."""
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
            os.close(self._lock)
            self._work = None

    def _place(self, temporary: Path, key: str, backend: str, library: str) -> Path:
        """Rename, unless an intact copy is already there. A broken one is moved out of the way."""
        copy = self.directory / key
        for _ in range(_TRIES):
            if self._intact(key, backend, library):
                return copy
            try:
                temporary.rename(copy)
            except OSError:
                if not copy.exists():
                    raise
                self._remove(copy)
            else:
                durable.sync(self.directory)
                return copy
        raise FileExistsError(f"{copy} is broken and comes back whenever it is removed")

    def _enter(self, identity: str, backend: str, library: str, key: str) -> None:
        draft = Path(mkdtemp(dir=self._own_work())) / "entry"
        durable.replace(self._entry(identity, backend, library), key.encode(), draft)
        draft.parent.rmdir()

    def _remove(self, copy: Path) -> None:
        """Others see it vanish at once. A replica that has mapped its files keeps them."""
        grave = Path(mkdtemp(dir=self._own_work()))
        with suppress(FileNotFoundError):  # another daemon was faster
            copy.rename(grave / copy.name)
        shutil.rmtree(grave, ignore_errors=True)

    def _make_room(self, kept: Path) -> None:
        """Remove the least recently used copies until the rest fits the limit, and the index entries of all that are gone."""
        copies = sorted(self._copies(), key=lambda copy: copy.last_used)
        excess = sum(copy.nbytes for copy in copies) - self.limit
        for copy in copies:
            if excess > 0 and copy.path != kept:
                self._remove(copy.path)
                excess -= copy.nbytes
        for entry in list(self._index.iterdir()):
            key = _read_key(entry)
            if key is None or not (self.directory / key).exists():
                entry.unlink(missing_ok=True)

    # ── what lies in the directory ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _key(self, content: str, backend: str, library: str) -> str:
        return digest(content, self._context(backend, library))

    def _entry(self, identity: str, backend: str, library: str) -> Path:
        return self._index / f"{identity}-{self._context(backend, library)}"

    def _context(self, backend: str, library: str) -> str:
        return digest(str(FORMAT), backend, library, self._cpu)

    def _copies(self) -> Iterator[_Copy]:
        for path in self.directory.iterdir():
            if _KEY.fullmatch(path.name):
                with suppress(OSError):  # another daemon removes it just now
                    last_used = (path / MANIFEST).stat().st_mtime if (path / MANIFEST).exists() else 0.0
                    yield _Copy(path, last_used, sum(file.stat().st_size for file in path.iterdir()))

    def _own_work(self) -> Path:
        """This daemon's own place for what is unfinished, with its lock held."""
        with self._making_work:
            if self._work is not None and self._work.exists():
                return self._work
            self.close()
            self._make_directories()
            self._work, self._lock = work.make(self.directory)
            return self._work

    def _make_directories(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._index.mkdir(mode=0o700, exist_ok=True)

    @contextmanager
    def _warned_once(self) -> Iterator[None]:
        """A cache may fail, but must not hurt: the first failure ends all writing, unless the disk is just full."""
        try:
            yield
        except FileNotFoundError:  # somebody clears the directory at this moment; the next copy will find it in order again
            _log.info("the cache of prepared models was changed by somebody else", exc_info=True)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                _log.warning("a model is not prepared, there is no room in the cache: %s", error)
            elif self.writable:
                self.writable = False
                _log.warning("models are not prepared from now on, the cache cannot be written: %s", error)


def _read_key(entry: Path) -> str | None:
    """None too for what is not a key: an entry may have been cut short by a crash."""
    try:
        key = entry.read_text(errors="replace")
    except OSError:
        return None
    return key if _KEY.fullmatch(key) else None


def _content(model: Path, identity: str) -> str | None:
    """Hash of the model's content if that is still what `identity` says and can be watched."""
    try:
        if identity_of(model) != identity or data_elsewhere(model):
            return None
        content = content_hash(model)
        return content if identity_of(model) == identity else None
    except OSError:  # the model is gone
        return None


def _seal(temporary: Path, manifest: Manifest) -> None:
    """Once this is done the copy is whole on the disk, so that a rename makes it so for everybody."""
    for name in manifest.files:
        durable.sync(temporary / name)
    durable.write(temporary / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    durable.sync(temporary)
