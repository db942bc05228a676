"""Files that are either whole or not there, whatever happens to the machine meanwhile. Everything here blocks."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until the file's content, or the directory's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace(path: Path, data: bytes, draft: Path) -> None:
    """Give `path` new content in one step. `draft` is a name on the same file system that nobody else uses."""
    write(draft, data)
    draft.replace(path)
    sync(path.parent)
