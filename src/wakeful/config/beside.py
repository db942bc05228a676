"""Settings that lie beside a model's file: `fraud.onnx.toml` beside `fraud.onnx` has keys of [[models]], all but `id`, `path`, `backend` and `text`.
They count for models that were found by looking; uploads write them.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wakeful.config.document import Document, read_document
from wakeful.config.effective import model_keys, written
from wakeful.config.problems import Problem
from wakeful.config.rules import broken_rules
from wakeful.config.schema import ModelTable, overlaid
from wakeful.config.settings import ModelSettings
from wakeful.config.validate import validate

SUFFIX = ".toml"
_ELSEWHERE = {
    "id": "follows from the file itself", "path": "follows from the file itself", "backend": "follows from the file's name",
    "text": "belongs to [[models]]",
}
"""Keys that such a file does not have."""


def settings_file(model: Path) -> Path:
    return model.with_name(model.name + SUFFIX)


def with_settings_beside(settings: ModelSettings, report: list[Problem]) -> ModelSettings | None:
    """The settings of a model that was found, with what lies beside its file over them; None where that is at fault, which is reported."""
    file = settings_file(settings.path)
    if not settings.path.is_file() or not file.is_file():
        return settings
    document = read_document(file)
    if isinstance(document, Problem):
        report.append(document)
        return None
    return with_keys(settings, document.values, document, report)


def with_keys(settings: ModelSettings, values: Mapping[str, Any], document: Document, report: list[Problem]) -> ModelSettings | None:
    """`settings` with some keys said otherwise; None where one is at fault, which is reported."""
    faults: list[Problem] = []
    given = keys_of_model(values, document.name, document.place, faults)
    if given is not None:
        table = overlaid(_own_keys(settings), given)
        faults += [
            Problem("conflict", message, document.place((key,)), key, severity=rule.severity)
            for rule, message, key in broken_rules(table, set(given))
        ]
    report += faults
    if given is None or any(fault.severity == "error" for fault in faults):
        return None
    return overlay(settings, given)


def overlay(settings: ModelSettings, keys: Mapping[str, Any]) -> ModelSettings:
    """`settings` with some keys said otherwise, which were validated before."""
    made = overlaid(_own_keys(settings), keys).settings(settings.path, settings.backend)
    return replace(
        settings, description=made.description, batching=made.batching, replicas=made.replicas, life=made.life, admission=made.admission,
        runtime=made.runtime, versions=made.versions, warmup=made.warmup,
    )


def keys_of_model(values: Mapping[str, Any], title: str, place: Any, report: list[Problem], *, strict: bool = True) -> dict[str, Any] | None:
    """Those keys of [[models]] that may stand beside a file, validated; None if one is wrong. `strict=False` takes numbers as text."""
    for name, why_not in _ELSEWHERE.items():
        if name in values:
            report.append(Problem("wrong-value", f"`{name}` {why_not}", place((name,)), name))
            return None
    before = len(report)
    table = validate(ModelTable, {"id": "m", "path": "m", **values}, title, place, report, strict=strict)
    if table is None or len(report) > before:
        return None
    return {key: value for key, value in table.given().items() if key not in _ELSEWHERE}


def text_of(keys: Mapping[str, Any]) -> str:
    """A file of settings that reads as these keys."""
    return "".join(f"{key} = {written(value)}\n" for key, value in keys.items() if value is not None)


def _own_keys(settings: ModelSettings) -> dict[str, Any]:
    keys = {key: value for key, value in model_keys(settings).items() if value is not None and key != "backend"}
    return ModelTable.model_validate(keys | {"id": "m", "path": "m"}).given()
