"""Files on their way into the models directory: written beside the models under a hidden name, and renamed into place once they are on disk."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from wakeful.errors import Unavailable
from wakeful.prepared import durable

PREFIX = ".upload-"
"""Hidden names are no models."""


class Draft:
    """All methods block. Locked as long as it is written, so that what a crash has left can be told from it."""

    def __init__(self, directory: Path, name: str, suffix: str, backend: str) -> None:
        """`name`: what its sender calls it. `suffix`: the end of its file name. Raises Unavailable where the directory cannot be written."""
        self.name = name
        self.suffix = suffix
        self.backend = backend
        self.path = directory / f"{PREFIX}{token_hex(8)}{suffix}"
        self.size = 0
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _unwritable(directory, error) from error
        with suppress(OSError):  # not every file system has locks
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, data: bytes) -> None:
        """Raises Unavailable where the disk takes no more."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            raise _unwritable(self.path.parent, error) from error
        self.size += len(data)

    def sync(self) -> None:
        """Raises Unavailable if it did not get to the disk."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise _unwritable(self.path.parent, error) from error

    def put(self, target: Path) -> None:
        """Rename it into place, whatever is there: whoever looks finds the old file or the new one, whole. Raises Unavailable."""
        try:
            self.path.replace(target)
            durable.sync(target.parent)
        except OSError as error:
            raise _unwritable(target.parent, error) from error

    def discard(self) -> None:
        """Take away what is not in place, and close it."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def write_whole(path: Path, text: str) -> None:
    """As a model's file is put: whole or not at all. Raises Unavailable."""
    draft = Draft(path.parent, path.name, path.suffix, "")
    try:
        draft.write(text.encode())
        draft.sync()
        draft.put(path)
    finally:
        draft.discard()


def sweep(directory: Path) -> None:
    """Take away what a crash has left, but not what another daemon writes."""
    with suppress(OSError):
        for path in directory.glob(f"{PREFIX}*"):
            with suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _unwritable(directory: Path, error: OSError) -> Unavailable:
    return Unavailable(f"the models directory {directory} takes no more files: {error.strerror}; nothing has changed")
