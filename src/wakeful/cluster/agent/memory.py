"""What survives a restart of the container: the last desired set, and where the files of what was served from it lie. With it nobody has to be
asked what to serve. Everything here blocks."""

import os
from pathlib import Path

import msgspec

from wakeful.cluster.wire import Wanted
from wakeful.prepared import durable

FILE = "desired.msgpack"
FORMAT = 1


class Proven(msgspec.Struct, frozen=True):
    """A model that has loaded here."""

    revision: str
    artifact: str
    """Revision of its files."""


class Remembered(msgspec.Struct, frozen=True):
    format: int = FORMAT
    epoch: int = 0
    models: dict[str, Wanted] = {}
    """Without the keys of their storage, which are in memory alone."""
    proven: dict[str, Proven] = {}


def remember(directory: Path, epoch: int, models: dict[str, Wanted], proven: dict[str, Proven]) -> None:
    """Write it down, whole or not at all. Raises OSError."""
    bare = {name: msgspec.structs.replace(wanted, secret={}) for name, wanted in models.items()}
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = msgspec.msgpack.encode(Remembered(FORMAT, epoch, bare, proven))
    durable.replace(directory / FILE, data, directory / f".{FILE}.{os.getpid()}")


def recall(directory: Path) -> Remembered | None:
    """What was written down last; None where there is nothing, or nothing of use."""
    try:
        remembered = msgspec.msgpack.decode((directory / FILE).read_bytes(), type=Remembered)
    except (OSError, msgspec.MsgspecError):
        return None
    return remembered if remembered.format == FORMAT else None
