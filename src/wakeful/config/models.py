"""Which models there are: those that [[models]] lists, those that lie in the models directory, and the demonstration models."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wakeful.config.beside import overlay, settings_file, with_settings_beside
from wakeful.config.document import Document, near_names
from wakeful.config.kinds import why_refused
from wakeful.config.layouts import FaultyModel, Found, Look, chosen, model_at, models_called, models_in
from wakeful.config.locate import KeyPath, dotted
from wakeful.config.problems import Place, Problem
from wakeful.config.rules import broken_rules
from wakeful.config.schema import DefaultsTable, ModelTable, TextTable, merged
from wakeful.config.settings import ForeignSettings, ModelSettings, PipelineSettings, Settings
from wakeful.config.text import with_text
from wakeful.config.validate import validate
from wakeful.config.values import BACKENDS, BY_NAME, check_id

DEMO_DIR = Path(__file__).parent.parent / "demo"


def configured_models(
    document: Document, defaults: DefaultsTable, directories: tuple[Path, ...], home: Path, report: list[Problem]
) -> list[ModelSettings]:
    """The [[models]] of a file. A relative `path` is looked for in each of `directories` in turn."""
    raw = document.values.get("models", [])
    if not isinstance(raw, list) or not all(isinstance(entry, dict) for entry in raw):
        hint = "each model begins with [[models]], in double brackets"
        report.append(Problem("wrong-type", "`models` must be a list of tables", document.place(("models",)), "models", hint))
        return []
    _report_duplicates(document, raw, report)
    models = []
    for index, entry in enumerate(raw):
        found = _find_model(document, index, entry, directories, home, report)
        model = _configured_model(document, index, entry, defaults, found, report)
        if model is not None and found is not None:
            backend = _backend(document, index, model, found, report)
            versions = _versions(model.settings(found.home, backend), found, report, model.text)
            if not versions:
                message = f"{found.home} has none of the versions that `versions` names, only {_numbers(found)}"
                path: KeyPath = ("models", index, "versions")
                report.append(Problem("missing-file", message, document.place(path), dotted(path)))
            models += versions
    return models


def scan(
    models_dir: Path, settings: Settings, served: Collection[Path] = (), report: list[Problem] | None = None, name: str | None = None
) -> tuple[list[ModelSettings], set[Path]]:
    """The models that lie in a directory now and that no [[models]] entry names, each called as its file or directory is, with the settings of
    [defaults]; and the paths that could not be looked at. `name`: only those of this name.

    For refreshing: entries of `settings.models` that were scanned themselves do not count. Where two files ask for one id, the one among `served`
    keeps it. Raises OSError for a directory that cannot be read.
    """
    configured = [model for model in settings.models if not model.scanned]
    report = [] if report is None else report
    look = models_in(models_dir, report) if name is None else models_called(models_dir, name, report)
    return _scanned(look, settings.defaults, configured, report, served, settings.pipelines), look.unread


def scan_directory(
    models_dir: Path, defaults: ModelSettings, taken: Iterable[ModelSettings], report: list[Problem]
) -> tuple[list[ModelSettings], set[Path]]:
    """As `scan`, for a start."""
    look = models_in(models_dir, report)
    return _scanned(look, defaults, taken, report), look.unread


def _scanned(
    look: Look, defaults: ModelSettings, taken: Iterable[ModelSettings], report: list[Problem], served: Collection[Path] = (),
    pipelines: Iterable[PipelineSettings] = (),
) -> list[ModelSettings]:
    taken = list(taken)
    paths = {os.path.realpath(path) for model in taken for path in (model.path, model.home) if path is not None}
    ids = {pipeline.id.lower(): "a pipeline" for pipeline in pipelines} | {model.id.lower(): str(model.path) for model in taken}
    models: list[ModelSettings] = []
    for found in sorted(look.found, key=lambda found: found.home not in served):
        if os.path.realpath(found.home) in paths:
            if settings_file(found.home).exists():
                message = f"{settings_file(found.home)} is ignored: [[models]] names its model, and has its settings"
                report.append(Problem("ignored", message, severity="warning"))
            continue
        try:
            name = check_id(found.id)
        except ValueError as error:
            report.append(Problem("file", f"{found.home} is passed over: its name {error}", hint="name it in [[models]]", severity="warning"))
            continue
        if other := ids.get(name.lower()):
            message = f'{found.home} is passed over: the id "{name}" is taken by {other}'
            report.append(Problem("duplicate-id", message, hint="name it in [[models]] with another id", severity="warning"))
            continue
        ids[name.lower()] = str(found.home)
        settings = replace(defaults, id=name, path=found.home, backend=found.backend, scanned=True)
        brought = _keys_of(found)
        tuned = with_settings_beside(overlay(settings, brought) if brought else settings, report)
        if tuned is None:
            look.unread.add(found.home)
        else:
            models += _versions(tuned, found, report)
    return models


def look_again(settings: ModelSettings, report: list[Problem]) -> list[ModelSettings]:
    """The versions that a model of [[models]] has now; none if it cannot be told, and `report` says why."""
    if settings.home is None:
        return [settings]
    try:
        found = model_at(settings.home, report)
    except OSError as error:
        report.append(Problem("file", f"{settings.home} cannot be read ({error.strerror}): its versions stay"))
    except FaultyModel as error:
        report.append(error.problem)
    else:
        return [] if found is None else _versions(settings, found, report)
    return []


def _versions(settings: ModelSettings, found: Found, report: list[Problem], text: TextTable | None = None) -> list[ModelSettings]:
    """The settings of each version that is to be served."""
    return [with_text(version, settings, text, report) for version in _located(settings, found, report)]


def _located(settings: ModelSettings, found: Found, report: list[Problem]) -> list[ModelSettings]:
    settings = replace(settings, home=None if found.home in found.files.values() else found.home, foreign=_foreign(found))
    if None in found.files:
        return [replace(settings, path=found.files[None])]
    served = chosen(settings.versions, [version for version in found.files if version is not None])
    if isinstance(settings.versions, tuple) and (missing := [str(number) for number in settings.versions if str(number) not in served]):
        message = f"{found.home} has no version {', '.join(missing)}, only {_numbers(found)}"
        report.append(Problem("missing-version", message, severity="warning"))
    return [replace(settings, path=found.files[version], version=version) for version in served]


def _numbers(found: Found) -> str:
    return ", ".join(map(str, found.files))


def _foreign(found: Found) -> ForeignSettings | None:
    account = found.account
    if found.config is None:
        return None
    return ForeignSettings(found.config, tuple(account.honoured), tuple(account.ignored), tuple(account.inputs), tuple(account.outputs))


def _keys_of(found: Found, own: Collection[str] = ()) -> dict[str, Any]:
    """What another server's configuration says by keys of [[models]], but for a model's `own`. What cannot be is told as not honoured."""
    given, place = {}, Place(str(found.config))
    for key, value in list(found.account.keys.items()):
        problems: list[Problem] = []
        table = validate(ModelTable, {"id": "m", "path": "m", key: value}, "[[models]]", lambda _: place, problems)
        if key in own:
            found.account.refuse(key, "[[models]] says otherwise")
        elif table is None or problems:
            found.account.refuse(key, "; ".join(problem.message for problem in problems))
        else:
            given[key] = getattr(table, key)
    return given


def demo_models(defaults: ModelSettings, taken: Iterable[ModelSettings]) -> list[ModelSettings]:
    """The models that come with the package; an id that is in use already goes before."""
    ids = {model.id.lower() for model in taken}
    demos = [found for found in models_in(DEMO_DIR, []).found if found.id.lower() not in ids]
    return [replace(defaults, id=found.id, path=found.home, backend=found.backend) for found in demos]


def report_broken_rules(document: Document, table: ModelTable, base: KeyPath, own: Iterable[str], report: list[Problem]) -> None:
    """Says which values of a table, merged with its defaults, do not go together."""
    for rule, message, key in broken_rules(table, set(own)):
        report.append(Problem("conflict", message, document.place((*base, key)), dotted((*base, key)), severity=rule.severity))


def _configured_model(
    document: Document, index: int, entry: Mapping[str, Any], defaults: DefaultsTable, found: Found | None, report: list[Problem]
) -> ModelTable | None:
    base: KeyPath = ("models", index)
    own = validate(ModelTable, entry, "[[models]]", document.place, report, base=base)
    if own is None:
        return None
    brought = {} if found is None else _keys_of(found, own.given())
    table = merged(defaults, brought | own.given())
    report_broken_rules(document, table, base, own.given(), report)
    return table


def _backend(document: Document, index: int, model: ModelTable, found: Found, report: list[Problem]) -> str:
    """What opens a model: what the entry says, else what the file's name says."""
    if model.backend != BY_NAME:
        return model.backend
    if not found.backend:
        path: KeyPath = ("models", index, "path")
        hint = f"if that is right, backend = \"onnx\" says so; there are {', '.join(BACKENDS[1:])}"
        message = f"{found.home.name} does not say by its name what it is, and is taken for ONNX"
        report.append(Problem("unknown-kind", message, document.place(path), dotted(path), hint, severity="warning"))
    return found.backend or "onnx"


def _report_duplicates(document: Document, raw: list[dict[str, Any]], report: list[Problem]) -> None:
    first: dict[str, int] = {}
    for index, entry in enumerate(raw):
        name = entry.get("id")
        if not isinstance(name, str):
            continue
        earlier = first.setdefault(name.strip().lower(), index)
        if earlier != index:
            path: KeyPath = ("models", index, "id")
            same = "is taken" if raw[earlier]["id"] == name else f'differs from "{raw[earlier]["id"]}" only in case or space'
            line = document.place(("models", earlier, "id")).line
            report.append(Problem("duplicate-id", f'the id "{name}" {same} (line {line})', document.place(path), dotted(path)))


def _find_model(
    document: Document, index: int, entry: Mapping[str, Any], directories: tuple[Path, ...], home: Path, report: list[Problem]
) -> Found | None:
    """The model that `path` names, if that is right; a wrong one is reported here or, if it is not even text, by the schema."""
    written = entry.get("path")
    if not isinstance(written, str) or not written.strip():
        return None
    candidates = [directory / expanded(written.strip(), home) for directory in directories]
    path: KeyPath = ("models", index, "path")

    def wrong(code: str, message: str, hint: str | None = None) -> None:
        report.append(Problem(code, message, document.place(path), dotted(path), hint))

    try:
        file = next((candidate for candidate in candidates if candidate.exists()), None)
    except (OSError, ValueError) as error:
        wrong("file", f"{written} cannot be read: {error}")
        return None
    if file is None:
        near = near_names(candidates[0].name, candidates[0].parent)
        wrong("missing-file", f"{candidates[0]} does not exist", f"near: {', '.join(near)}" if near else None)
    elif refusal := why_refused(file.name):
        wrong("pickle", f"{file} cannot be served: {refusal}")
    elif not os.access(file, os.R_OK):
        wrong("file", f"{file} may not be read by this user")
    elif file.is_dir():
        return _model_in(file, report, wrong)
    elif not file.is_file():
        wrong("file", f"{file} is not a file")
    else:
        return model_at(file, report) or Found(file.stem, file.absolute(), "", {None: file.absolute()})
    return None


def _model_in(directory: Path, report: list[Problem], wrong: Callable[[str, str], None]) -> Found | None:
    passed_over: list[Problem] = []
    try:
        found = model_at(directory, passed_over)
    except OSError as error:
        wrong("file", f"{directory} cannot be read: {error.strerror}")
        return None
    except FaultyModel as error:
        wrong("file", f"{error.problem.place or directory}: {error}")
        return None
    if found is None:
        reasons = "".join(f"; {problem.message}" for problem in passed_over)
        wrong("file", f"{directory} is a directory without a model: it has neither model.onnx nor wakeful_model.py nor 1/model.onnx{reasons}")
        return None
    report += passed_over
    return found


def expanded(path: str, home: Path) -> Path:
    """With a leading `~` made the home directory."""
    return home / path[2:] if path.startswith("~/") else Path(path)
