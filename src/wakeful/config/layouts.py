"""How models lie on disk. A model is a file, or a directory:

    fraud.onnx              the model `fraud`
    fraud/model.onnx        the same; further files that it needs lie beside it
    fraud/1/model.onnx      its version 1, as in Triton's repositories; what lies in a version's directory is its own
    fraud/2/model.onnx
    fraud/wakeful_model.py  the model `fraud`, of Python code and whatever lies beside and below it; a version's directory may be the same
    minilm/onnx/model.onnx  an export from Hugging Face, which has minilm/tokenizer.json

This is the only place that knows. What a file is, its name tells (`kinds`).
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from wakeful.config.kinds import Named, kind_of, marked
from wakeful.config.problems import Problem
from wakeful.config.settings import VersionPolicy

TOKENIZER = "tokenizer.json"
USUAL_NAME = "model"
"""Of the file in a directory that is a model, without its suffix."""
_NUMBER = re.compile(r"[1-9]\d{0,18}")
_UNFINISHED = (".tmp", ".part", ".partial")
"""Ends of names that whatever is still being written has."""


class Found(NamedTuple):
    """A model on disk."""

    id: str
    """What it is called if nobody says otherwise."""
    home: Path
    """The file or the directory that is the model."""
    backend: str
    files: Mapping[int | None, Path]
    """What a backend opens, by version; the only one is None where versions are not numbered."""


class Look(NamedTuple):
    """What a look into a directory of models has shown."""

    found: list[Found]
    unread: set[Path]
    """What is there and could not be looked at."""


def models_in(directory: Path, report: list[Problem]) -> Look:
    """The models that lie in a directory, in the order of their names; says in `report` what had to be passed over.

    Raises OSError for a directory that cannot be read itself.
    """
    return _look_at(sorted(directory.iterdir()), report)


def models_called(directory: Path, name: str, report: list[Problem]) -> Look:
    """The same for those of one name, without a look at the others."""
    prefix = f"{name}."
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.name == name or entry.name.startswith(prefix)]
    look = _look_at([directory / one for one in sorted(names)], report)
    return Look([found for found in look.found if found.id == name], look.unread)


def model_at(path: Path, report: list[Problem]) -> Found | None:
    """The model that a file or a directory is. Raises OSError for one that cannot be read."""
    path = path.absolute()
    named = kind_of(path.name)
    if path.is_dir():
        return _model_in(path, report)
    if named is None or not path.is_file():
        return None
    return Found(named.stem, path, named.backend, {None: path})


def chosen(policy: VersionPolicy, there: Iterable[int]) -> list[int]:
    """The versions of those that are there which a policy lets be served, in rising order."""
    numbers = sorted(there)
    if policy == "all":
        return numbers
    return [number for number in numbers if number in policy] if isinstance(policy, tuple) else numbers[-policy:]


def _look_at(entries: Iterable[Path], report: list[Problem]) -> Look:
    look = Look([], set())
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            found = None if _is_unfinished(entry, report) else model_at(entry, report)
        except OSError as error:
            report.append(_passed_over(entry, f"it cannot be read ({error.strerror})"))
            look.unread.add(entry.absolute())
            continue
        if found is not None:
            look.found.append(found)
    return look


def _is_unfinished(entry: Path, report: list[Problem]) -> bool:
    """Is it no model yet, or not any more?"""
    if entry.name.endswith(_UNFINISHED):
        if entry.is_dir() or kind_of(entry.name.rpartition(".")[0]) is not None:
            report.append(_passed_over(entry, "its name says that it is not finished"))
        return True
    if kind_of(entry.name) is not None and not entry.exists():
        report.append(_passed_over(entry, "the link leads nowhere"))
        return True
    return False


def _model_in(directory: Path, report: list[Problem]) -> Found | None:
    """The model that a directory is; None if it is none."""
    entries = [entry for entry in sorted(directory.iterdir()) if not entry.name.startswith(".")]
    whole = marked(entry.name for entry in entries) is not None
    numbered = {int(entry.name): entry for entry in entries if _NUMBER.fullmatch(entry.name) and entry.is_dir() and not whole}
    files: dict[int | None, Path] = {}
    backend = ""
    for number, version in sorted(numbered.items()):
        file = _file_in(version, sorted(version.iterdir()), report, any_name=True)
        if file is not None:
            backend, files[number] = file
    if not numbered and (file := _file_in(directory, entries, report)) is not None:
        backend, files[None] = file
    if not numbered and not files and (exported := directory / "onnx" / "model.onnx").is_file() and (directory / TOKENIZER).is_file():
        backend, files[None] = "onnx", exported
    return Found(directory.name, directory, backend, files) if files else None


def _file_in(directory: Path, entries: Iterable[Path], report: list[Problem], *, any_name: bool = False) -> tuple[str, Path] | None:
    """Backend and path of what is to be opened in a directory with one model: the file of the usual name, or the only one if `any_name` will do."""
    entries = list(entries)
    if (backend := marked(entry.name for entry in entries)) is not None:
        return backend, directory
    there: list[tuple[Named, Path]] = []
    for entry in entries:
        named = kind_of(entry.name)
        if named is not None and not entry.name.startswith(".") and entry.is_file():
            there.append((named, entry))
    usual = [one for one in there if one[0].stem == USUAL_NAME]
    fitting = usual or (there if any_name else [])
    if len(fitting) != 1 and there:
        names = ", ".join(path.name for _, path in there)
        report.append(_passed_over(directory, f"it holds {names}; of a model that is a directory, one file alone is called {USUAL_NAME}"))
    return (fitting[0][0].backend, fitting[0][1]) if len(fitting) == 1 else None


def _passed_over(path: Path, why: str) -> Problem:
    return Problem("file", f"{path} is passed over: {why}", severity="warning")
