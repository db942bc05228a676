"""Which backends exist: the module of each, and what to install for it. Imports none of them."""

import importlib
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from wakeful.backends.base import Backend, LoadOptions
from wakeful.errors import Unavailable


class Entry(NamedTuple):
    """A backend that can be asked for by name."""

    module: str
    install: str
    """What `pip install` needs for its library."""


class BackendModule(Protocol):
    """What every backend's module offers."""

    LIBRARY: str
    """Name and version of the library, as "onnxruntime 1.32.0"."""

    open_model: Callable[[str, LoadOptions], Backend]
    """Opens the model at a path. Raises Unavailable or OutOfMemory."""

    prepare: Callable[[str, str], None]
    """Writes the prepared copy of the model at a path into an existing, empty directory. Raises Unavailable or OutOfMemory."""

    providers: Callable[[], tuple[str, ...]]
    """Names of the library's execution providers."""


BACKENDS: dict[str, Entry] = {
    "onnx": Entry("wakeful.backends.onnx", "wakeful"),
    "xgboost": Entry("wakeful.backends.xgboost", "wakeful[xgboost]"),
    "lightgbm": Entry("wakeful.backends.lightgbm", "wakeful[lightgbm]"),
    "catboost": Entry("wakeful.backends.catboost", "wakeful[catboost]"),
    "python": Entry("wakeful.backends.python", "wakeful"),
    "tokenizer": Entry("wakeful.backends.tokenizer", "wakeful"),
}


class Library(NamedTuple):
    """A library that has been imported."""

    name: str
    providers: tuple[str, ...]


def warm(name: str) -> Library:
    """Import a backend's library ahead of its use. Raises Unavailable as `module` does."""
    imported = module(name)
    return Library(imported.LIBRARY, imported.providers())


def module(name: str) -> BackendModule:
    """Import a backend's module and with it its library.

    Raises Unavailable for an unknown name, and, with the command that helps, where the library is missing.
    """
    entry = BACKENDS.get(name)
    if entry is None:
        raise Unavailable(f'no backend is called "{name}"; there are: {", ".join(sorted(BACKENDS))}')
    try:
        return cast(BackendModule, importlib.import_module(entry.module))
    except ImportError as error:
        advice = f"in the server's environment, pip install '{entry.install}' brings its library"
        raise Unavailable(f"backend {name} cannot be imported ({error}); {advice}") from error
