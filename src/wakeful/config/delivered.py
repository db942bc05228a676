"""Models that a cluster sends: files that lie somewhere on this machine, with keys of [[models]] that lie beside no file."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from wakeful.config.document import Document
from wakeful.config.effective import model_keys
from wakeful.config.models import configured_models
from wakeful.config.problems import ConfigError, Problem
from wakeful.config.schema import DefaultsTable, TuningTable
from wakeful.config.settings import ModelSettings
from wakeful.config.validate import validate

_ELSEWHERE = {"id": "is the name of the Model", "path": "follows from storageUri", "backend": "belongs to the Model itself, beside storageUri"}
"""Keys of [[models]] that a serving section does not have."""


def delivered(
    name: str, path: Path, revision: str, serving: Mapping[str, Any], defaults: ModelSettings, backend: str | None = None, *, pinned: bool = False,
) -> tuple[list[ModelSettings], list[Problem]]:
    """The settings of each version of a model that lies at `path`, and warnings. Raises ConfigError with the words that a file of settings would get.

    `revision`: what the cluster calls this state of the model. `defaults`: what [defaults] of this daemon says.
    """
    given = {"pinned": True} if pinned else {}
    document = Document(f"serving of model {name}", {"models": [given | dict(serving) | {"id": name, "path": str(path)}]})
    if backend is not None:
        document.values["models"][0]["backend"] = backend
    report = [
        Problem("wrong-value", f"`{key}` {why}", document.place((key,)), f"serving.{key}") for key, why in _ELSEWHERE.items() if key in serving
    ]
    models = configured_models(document, _table(defaults), (path.parent,), Path(), report)
    if any(problem.severity == "error" for problem in report):
        raise ConfigError([replace(problem, key=problem.key.replace("models[0]", "serving")) for problem in report])
    label = sha256(revision.encode()).hexdigest()[:8]
    return [replace(settings, revision=label) for settings in models], report


def _table(defaults: ModelSettings) -> DefaultsTable:
    """[defaults] as it would have to be written for these settings."""
    keys = {key: value for key, value in model_keys(defaults).items() if key in TuningTable.model_fields and value is not None}
    report: list[Problem] = []
    table = validate(DefaultsTable, keys, "[defaults]", Document("").place, report)
    assert table is not None
    assert not report
    return table
