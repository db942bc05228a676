"""Which models there are: those that [[models]] lists, those that lie in the models directory, and the demonstration models."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wakeful.config.document import Document, near_names
from wakeful.config.kinds import kind_of, models_in
from wakeful.config.locate import KeyPath, dotted
from wakeful.config.problems import Problem
from wakeful.config.rules import broken_rules
from wakeful.config.schema import DefaultsTable, ModelTable, check_id, merged
from wakeful.config.settings import ModelSettings, Settings
from wakeful.config.validate import validate

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
        model = _configured_model(document, index, entry, defaults, report)
        file = _find_file(document, index, entry, directories, home, report)
        if model is not None and file is not None:
            found = kind_of(file)
            models.append(model.settings(file, found.backend if found is not None else "onnx"))
    return models


def scan(models_dir: Path, settings: Settings, served: Collection[Path] = (), report: list[Problem] | None = None) -> list[ModelSettings]:
    """The models that lie in a directory now and that no [[models]] entry names, each called as its file is, with the settings of [defaults].

    For refreshing: entries of `settings.models` that were scanned themselves do not count. Where two files ask for one id, the one among `served`
    keeps it. Raises OSError for a directory that cannot be read.
    """
    configured = [model for model in settings.models if not model.scanned]
    return scan_directory(models_dir, settings.defaults, configured, [] if report is None else report, served)


def scan_directory(
    models_dir: Path, defaults: ModelSettings, taken: Iterable[ModelSettings], report: list[Problem], served: Collection[Path] = ()
) -> list[ModelSettings]:
    """As `scan`, and says in `report` which files it had to pass over. Looks at the directory itself, not below it."""
    paths = {os.path.realpath(model.path) for model in taken}
    ids = {model.id.lower(): str(model.path) for model in taken}
    models = []
    for found in sorted(models_in(models_dir), key=lambda found: found.path not in served):
        file = found.path
        if os.path.realpath(file) in paths:
            continue
        try:
            name = check_id(found.id)
        except ValueError as error:
            report.append(Problem("file", f"{file} is passed over: its name {error}", hint="name it in [[models]]", severity="warning"))
            continue
        if other := ids.get(name.lower()):
            message = f'{file} is passed over: the id "{name}" is taken by {other}'
            report.append(Problem("duplicate-id", message, hint="name it in [[models]] with another id", severity="warning"))
            continue
        ids[name.lower()] = str(file)
        models.append(replace(defaults, id=name, path=file, backend=found.backend, scanned=True))
    return models


def demo_models(defaults: ModelSettings, taken: Iterable[ModelSettings]) -> list[ModelSettings]:
    """The models that come with the package; an id that is in use already goes before."""
    ids = {model.id.lower() for model in taken}
    found = (replace(defaults, id=found.id, path=found.path, backend=found.backend) for found in models_in(DEMO_DIR))
    return [model for model in found if model.id.lower() not in ids]


def report_broken_rules(document: Document, table: ModelTable, base: KeyPath, own: Iterable[str], report: list[Problem]) -> None:
    """Says which values of a table, merged with its defaults, do not go together."""
    for rule, message, key in broken_rules(table, set(own)):
        report.append(Problem("conflict", message, document.place((*base, key)), dotted((*base, key)), severity=rule.severity))


def _configured_model(
    document: Document, index: int, entry: Mapping[str, Any], defaults: DefaultsTable, report: list[Problem]
) -> ModelTable | None:
    base: KeyPath = ("models", index)
    own = validate(ModelTable, entry, "[[models]]", document.place, report, base=base)
    if own is None:
        return None
    table = merged(defaults, own.given())
    report_broken_rules(document, table, base, own.given(), report)
    return table


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


def _find_file(
    document: Document, index: int, entry: Mapping[str, Any], directories: tuple[Path, ...], home: Path, report: list[Problem]
) -> Path | None:
    """The absolute path of a model's file, if `path` is right; a wrong one is reported here or, if it is not even text, by the schema."""
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
        near = near_names(candidates[0].name, candidates[0].parent, "*.onnx")
        wrong("missing-file", f"{candidates[0]} does not exist", f"near: {', '.join(near)}" if near else None)
    elif not file.is_file():
        wrong("file", f"{file} is not a file")
    elif not os.access(file, os.R_OK):
        wrong("file", f"{file} may not be read by this user")
    else:
        return file.absolute()
    return None


def expanded(path: str, home: Path) -> Path:
    """With a leading `~` made the home directory."""
    return home / path[2:] if path.startswith("~/") else Path(path)
