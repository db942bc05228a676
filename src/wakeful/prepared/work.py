"""Directories for what is unfinished, in a place that several processes share. Each is locked as long as its owner lives, so that whoever comes
later can tell what the dead have left behind. Everything here blocks.
"""

import fcntl
import os
import shutil
from pathlib import Path
from tempfile import mkdtemp

_PREFIX = "work-"
_TRIES = 5
"""Of what another process may take for a dead one's at any moment."""


def make(home: Path) -> tuple[Path, int]:
    """A new directory in `home`, and the descriptor that keeps it locked. Raises BlockingIOError where the file system has no locks."""
    for _ in range(_TRIES):
        work = Path(mkdtemp(prefix=_PREFIX, dir=home))
        descriptor = lock(work)
        if descriptor is not None:  # else somebody who starts just now took it for a dead one's
            return work, descriptor
    raise BlockingIOError(f"no lock can be had in {home}")


def under_way(home: Path) -> list[Path]:
    return list(home.glob(f"{_PREFIX}*"))


def clear_dead(home: Path) -> None:
    """Remove what nobody alive works on."""
    for work in under_way(home):
        descriptor = lock(work)
        if descriptor is not None:
            shutil.rmtree(work, ignore_errors=True)
            os.close(descriptor)


def lock(directory: Path, *, shared: bool = False) -> int | None:
    """The descriptor of the directory's locked lock file; None when the file system has no locks, or when the directory has been removed or put
    elsewhere meanwhile. One that is not shared is not waited for (None); a shared one is: who excludes it only looks, or is about to remove it."""
    path = directory / "lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
