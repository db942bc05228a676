"""Kinds of models: which files they are, which backend opens them, and which distribution has its library. The backends themselves are imported by
child processes alone (`backends.catalog`)."""

from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple


class Kind(NamedTuple):
    suffixes: tuple[str, ...]
    """Ends of file names, with the dot. A file found by looking is called as it is without."""
    distributions: tuple[str, ...]
    """Whose version is the library's; the first that is installed counts."""
    prepares: bool = False
    """Are copies prepared that load faster?"""


KINDS: dict[str, Kind] = {
    "onnx": Kind((".onnx",), ("onnxruntime", "onnxruntime-gpu"), prepares=True),
}
"""By the backend's name."""


class Found(NamedTuple):
    """A model that was found by looking."""

    id: str
    path: Path
    backend: str


def kind_of(path: Path) -> Found | None:
    """What a file or directory is by its name, and what it would be called; None where it is no model."""
    for backend, kind in KINDS.items():
        for suffix in kind.suffixes:
            if path.name.endswith(suffix) and path.name != suffix:
                return Found(path.name.removesuffix(suffix), path, backend)
    return None


def models_in(directory: Path) -> list[Found]:
    """The models that lie in a directory, in the order of their names. Raises OSError for a directory that cannot be read."""
    entries = (entry.absolute() for entry in sorted(directory.iterdir()) if not entry.name.startswith(".") and entry.is_file())
    return [found for entry in entries if (found := kind_of(entry)) is not None]


@cache
def library_of(backend: str) -> str:
    """Name and version of a backend's library, without importing it. Looking it up takes a walk through the installed packages."""
    for distribution in KINDS[backend].distributions:
        try:
            return f"{distribution} {metadata.version(distribution)}"
        except metadata.PackageNotFoundError:
            continue
    return "missing"
