"""How models lie on disk. A model is a file, or a directory:

    fraud.onnx                    the model `fraud`
    fraud/model.onnx              the same; further files that it needs lie beside it
    fraud/1/model.onnx            its version 1, as in Triton's repositories; what lies in a version's directory is its own
    fraud/2/model.onnx
    fraud/wakeful_model.py        the model `fraud`, of Python code and whatever lies beside and below it; a version's directory may be the same
    fraud/config.pbtxt            what Triton is told of it (`triton`)
    iris/model-settings.json      what MLServer is told of a model, its name and its file among it (`mlserver`)
    minilm/onnx/model.onnx        an export from Hugging Face, which has minilm/tokenizer.json

This is the only place that knows. What a file is, its name tells (`kinds`).
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from wakeful.config import mlserver, triton
from wakeful.config.foreign import Account
from wakeful.config.kinds import SERVED, kind_of, marked, why_refused, why_unread
from wakeful.config.problems import Place, Problem
from wakeful.config.settings import VersionPolicy, rank
from wakeful.config.textproto import TextProtoError, parse

TOKENIZER = "tokenizer.json"
USUAL_NAME = "model"
"""Of the file in a directory that is a model, without its suffix."""
_NUMBER = re.compile(r"[1-9][0-9]{0,18}")
LARGEST_CONFIG = 1024 * 1024
"""Bytes of another server's configuration of a model."""
_UNFINISHED = (".tmp", ".part", ".partial")
"""Ends of names that whatever is still being written has."""


@dataclass(frozen=True)
class Found:
    """A model on disk."""

    id: str
    """What it is called if nobody says otherwise."""
    home: Path
    """The file or the directory that is the model."""
    backend: str
    files: Mapping[str | None, Path]
    """What a backend opens, by version; the only one is None where there are no versions."""
    config: Path | None = None
    """Another server's configuration of it."""
    account: Account = field(default_factory=Account)
    """What came of that."""


class Look(NamedTuple):
    """What a look into a directory of models has shown."""

    found: list[Found]
    unread: set[Path]
    """What is there and could not be looked at."""


class FaultyModel(Exception):
    """A model's own configuration cannot be understood."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class _Wanted(NamedTuple):
    """What a configuration says of the file that is to be opened."""

    names: tuple[str, ...] = ()
    backend: str | None = None
    """Of a file whose name does not tell."""


def models_in(directory: Path, report: list[Problem]) -> Look:
    """The models that lie in a directory, in the order of their names; says in `report` what had to be passed over.

    Raises OSError for a directory that cannot be read itself.
    """
    entries = sorted(directory.iterdir())
    if not (directory / mlserver.FILE).is_file():
        return _look_at(entries, report)
    itself = _look_at([directory], report)  # MLServer is often started in the directory of its only model
    own = {file for found in itself.found for file in found.files.values()}
    rest = _look_at([entry for entry in entries if entry.absolute() not in own], report)
    return Look(itself.found + rest.found, itself.unread | rest.unread)


def models_called(directory: Path, name: str, report: list[Problem]) -> Look:
    """The same for those of one name, without a look at others that are called as their files are."""
    prefix = f"{name}."
    called: list[Path] = []
    others: list[Path] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name == name or entry.name.startswith(prefix):
                called.append(directory / entry.name)
            elif entry.is_dir() and Path(entry.path, mlserver.FILE).exists():
                others.append(directory / entry.name)
    look, elsewhere = _look_at(sorted(called), report), _look_at(sorted(others), [])
    return Look([found for found in look.found + elsewhere.found if found.id == name], look.unread | elsewhere.unread)


def model_at(path: Path, report: list[Problem]) -> Found | None:
    """The model that a file or a directory is. Raises OSError for one that cannot be read, and FaultyModel."""
    path = path.absolute()
    if path.is_dir():
        settings = path / mlserver.FILE
        return _of_mlserver(settings, report) if settings.is_file() else _model_in(path, report)
    named = kind_of(path.name)
    return Found(named.stem, path, named.backend, {None: path}) if named is not None and path.is_file() else None


def chosen(policy: VersionPolicy, there: Iterable[str]) -> list[str]:
    """The versions of those that are there which a policy lets be served, the newest last."""
    versions = sorted(there, key=rank)
    if policy == "all":
        return versions
    return [version for version in versions if version in map(str, policy)] if isinstance(policy, tuple) else versions[-policy:]


def _look_at(entries: Iterable[Path], report: list[Problem]) -> Look:
    look = Look([], set())
    for entry in entries:
        if entry.name.startswith(".") or _is_refused(entry, report):
            continue
        try:
            found = None if _is_unfinished(entry, report) else model_at(entry, report)
        except OSError as error:
            report.append(_passed_over(entry, f"it cannot be read ({error.strerror})"))
            look.unread.add(entry.absolute())
        except FaultyModel as error:
            report.append(error.problem)
            look.unread.add(entry.absolute())
        else:
            look.found.extend([] if found is None else [found])
            if found is None and (why := why_unread(entry.name)) and entry.is_file() and not _is_converted(entry):
                report.append(_passed_over(entry, why))
    return look


def _is_refused(entry: Path, report: list[Problem]) -> bool:
    """Is it a model of a kind that is never opened? Not a word of one that has been converted."""
    refusal = why_refused(entry.name)
    if refusal is not None and not _is_converted(entry):
        report.append(_passed_over(entry, refusal, "pickle"))
    return refusal is not None


def _is_converted(entry: Path) -> bool:
    return entry.with_suffix(".onnx").exists()


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


# Triton, and directories without any configuration --------------------------------------------------------------------------------------


def _model_in(directory: Path, report: list[Problem]) -> Found | None:
    """The model that a directory is; None if it is none."""
    entries = [entry for entry in sorted(directory.iterdir()) if not entry.name.startswith(".")]
    whole = marked(entry.name for entry in entries) is not None
    numbered = [entry for entry in entries if _NUMBER.fullmatch(entry.name) and entry.is_dir() and not whole]
    config = directory / triton.FILE
    message = _read_pbtxt(config) if config.is_file() else None
    wanted = _Wanted() if message is None else _Wanted(*triton.file_of(message))
    files: dict[str | None, Path] = {}
    backend = ""
    for version in sorted(numbered, key=lambda entry: rank(entry.name)):
        file = _file_in(version, sorted(version.iterdir()), wanted, report, any_name=True)
        if file is not None:
            backend, files[version.name] = file
    if not numbered and (file := _file_in(directory, entries, wanted, report)) is not None:
        backend, files[None] = file
    if not numbered and not files and (exported := directory / "onnx" / "model.onnx").is_file() and (directory / TOKENIZER).is_file():
        backend, files[None] = "onnx", exported
    if not files:
        if message is not None:
            asks = triton.platform_of(message) or "nothing"
            chain = "it is an ensemble, which is a table [[pipelines]] here, with the same names"
            why = chain if "ensemble_scheduling" in message else f"it has no file of {SERVED} ({triton.FILE} asks for {asks})"
            report.append(_passed_over(directory, why))
        return None
    found = Found(directory.name, directory, backend, files, None if message is None else config)
    if message is not None:
        triton.read(message, found.id, backend, {file.name for file in files.values()}, found.account)
    return found


def _file_in(
    directory: Path, entries: Iterable[Path], wanted: _Wanted, report: list[Problem], *, any_name: bool = False
) -> tuple[str, Path] | None:
    """Backend and path of what is to be opened in a directory with one model: the file that is wanted, else the one of the usual name, else the
    only one if `any_name` will do."""
    entries = list(entries)
    if (whole := marked(entry.name for entry in entries)) is not None:
        return whole, directory
    entries = [entry for entry in entries if not _is_refused(entry, report)]
    there = [(named, entry) for entry in entries if (named := kind_of(entry.name)) is not None and entry.name[0] != "." and entry.is_file()]
    for name in wanted.names:
        file, kind = directory / name, kind_of(name)
        backend = kind.backend if kind is not None else wanted.backend
        if backend is not None and file.is_file():
            return backend, file
    usual = [one for one in there if one[0].stem == USUAL_NAME]
    fitting = usual or (there if any_name else [])
    if len(fitting) != 1 and there:
        names = ", ".join(path.name for _, path in there)
        report.append(_passed_over(directory, f"it holds {names}; of a model that is a directory, one file alone is called {USUAL_NAME}"))
    return (fitting[0][0].backend, fitting[0][1]) if len(fitting) == 1 else None


def _read_pbtxt(file: Path) -> dict[str, list[Any]]:
    try:
        return parse(_read_config(file).decode())
    except TextProtoError as error:
        place = Place(str(file), error.line, error.column)
        raise FaultyModel(Problem("syntax", f"{file.parent} is passed over: {error}", place, severity="warning")) from None
    except UnicodeDecodeError:
        raise FaultyModel(_passed_over(file.parent, f"{file.name} is not UTF-8")) from None


def _read_config(file: Path) -> bytes:
    with file.open("rb") as opened:
        data = opened.read(LARGEST_CONFIG + 1)
    if len(data) > LARGEST_CONFIG:
        raise FaultyModel(_passed_over(file.parent, f"{file.name} has more than {LARGEST_CONFIG} bytes"))
    return data


# MLServer -------------------------------------------------------------------------------------------------------------------------------


def _of_mlserver(settings: Path, report: list[Problem]) -> Found | None:
    """The model that MLServer's settings describe; None if it cannot be served."""
    home = settings.parent
    try:
        values = json.loads(_read_config(settings))
    except (ValueError, RecursionError) as error:
        raise FaultyModel(_passed_over(home, f"{settings.name} is no JSON ({error})")) from None
    name = values.get("name") if isinstance(values, dict) else None
    if not isinstance(name, str):
        raise FaultyModel(_passed_over(home, f"{settings.name} has no name"))
    wanted, why_not = mlserver.file_of(values)
    file = None if why_not else _wanted_file(home, _Wanted(*wanted), report)
    if file is None:
        report.append(_passed_over(home, why_not or f"it has no file of {SERVED}"))
        return None
    found = Found(name, home, file[0], {mlserver.version_of(values): file[1]}, settings)
    try:
        mlserver.read(values, found.account)
    except RecursionError:
        raise FaultyModel(_passed_over(home, f"{settings.name} is nested too deep")) from None
    return found


def _wanted_file(home: Path, wanted: _Wanted, report: list[Problem]) -> tuple[str, Path] | None:
    """Of the names that are wanted, one may be a directory in which the file is."""
    for name in wanted.names:
        if (home / name).is_dir():
            return _file_in(home / name, sorted((home / name).iterdir()), wanted, report, any_name=True)
    return _file_in(home, sorted(home.iterdir()), wanted, report)


def _passed_over(path: Path, why: str, code: str = "file") -> Problem:
    return Problem(code, f"{path} is passed over: {why}", severity="warning")
