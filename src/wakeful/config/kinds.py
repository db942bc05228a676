"""Kinds of models: which files they are, which backend opens them, and which distribution has its library. The backends themselves are imported by
child processes alone (`backends.catalog`)."""

from collections.abc import Iterable
from functools import cache
from importlib import metadata
from typing import NamedTuple


class Kind(NamedTuple):
    suffixes: tuple[str, ...]
    """Ends of file names, with the dot. A file found by looking is called as it is without."""
    distributions: tuple[str, ...]
    """Whose version is the library's; the first that is installed counts."""
    prepares: bool = False
    """Are copies prepared that load faster?"""
    companions: bool = False
    """May other files beside it hold its weights?"""
    markers: tuple[str, ...] = ()
    """Files of which any makes the whole directory that it lies in what the backend opens."""
    serves_models: bool = False
    """It only helps other models: `max_loaded_models` does not count it."""


KINDS: dict[str, Kind] = {
    "onnx": Kind((".onnx",), ("onnxruntime", "onnxruntime-gpu"), prepares=True, companions=True),
    "xgboost": Kind((".xgb.json", ".xgb.ubj", ".ubj"), ("xgboost", "xgboost-cpu")),
    "lightgbm": Kind((".lgb.txt", ".lightgbm.txt"), ("lightgbm",)),
    "catboost": Kind((".cbm",), ("catboost",)),
    "python": Kind((), ("numpy",), markers=("wakeful_model.py", "snooze_model.json", "snooze_model.py")),
    "tokenizer": Kind((), ("tokenizers",), serves_models=True),
}
"""By the backend's name."""

PICKLES = (".pkl", ".pickle", ".joblib")
"""Ends of names of files that are never opened here: reading one runs whatever program is in it."""
UNREAD = (".pt", ".pth", ".safetensors", ".h5", ".keras", ".tflite", ".gguf")
"""Ends of names of models that no library here opens."""

SERVED = ", ".join(backend for backend, kind in KINDS.items() if not kind.serves_models)
"""Kinds of models, for people."""


class Named(NamedTuple):
    """What the name of a file says."""

    stem: str
    """Without its suffix."""
    backend: str


def kind_of(name: str) -> Named | None:
    """What a file of this name is; None where it is no model."""
    for backend, kind in KINDS.items():
        for suffix in kind.suffixes:
            if name.endswith(suffix) and name != suffix:
                return Named(name.removesuffix(suffix), backend)
    return None


def marked(names: Iterable[str]) -> str | None:
    """The backend that opens a directory as a whole in which files of these names lie; None where it is not one thing."""
    there = set(names)
    return next((backend for backend, kind in KINDS.items() if not there.isdisjoint(kind.markers)), None)


def why_refused(name: str) -> str | None:
    """What is wrong with a file of a kind that is never opened, and what to do about it; None for all others."""
    if not name.endswith(PICKLES):
        return None
    onnx = f"{name.rpartition('.')[0]}.onnx"
    return f"it is a pickle, and to open one is to run the program in it; make ONNX of it: wakeful convert {name} -o {onnx}"


def why_unread(name: str) -> str | None:
    """What to do with a model that no library here opens; None for files that are served, and for those that are no models at all."""
    if not name.endswith(UNREAD):
        return None
    return "no library here opens it; export it to ONNX, or serve it by your own code: a directory with a wakeful_model.py"


@cache
def library_of(backend: str) -> str:
    """Name and version of a backend's library, without importing it. Looking it up takes a walk through the installed packages."""
    for distribution in KINDS[backend].distributions:
        try:
            return f"{distribution} {metadata.version(distribution)}"
        except metadata.PackageNotFoundError:
            continue
    return "missing"
