"""Where each setting comes from: a line of the file, an option, a variable; the default where none of them says it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from wakeful.config.beside import settings_file
from wakeful.config.cluster import cluster_keys
from wakeful.config.document import Document
from wakeful.config.effective import bound_keys, model_keys, pipeline_keys, server_keys, stream_keys
from wakeful.config.schema import ALIASES
from wakeful.config.settings import ModelSettings, Settings

DEFAULT = "default"
SECRET = "***"  # noqa: S105 - stands for one
_PLACE = frozenset({"id", "path", "backend"})
"""Of a model that was found by looking, what follows from its file."""
_LISTS = {"models": "id", "pipelines": "id", "streams": "name"}
"""Tables of which there may be several, each with the key that names one."""


class Sourced(NamedTuple):
    key: str
    value: Any
    source: str


def said_by(document: Document, flags: Mapping[str, Any], variables: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """By key ("server.port", "models.fraud.pinned"): where it was said, the strongest place last."""
    said: dict[str, str] = {}
    for path, position in document.positions.items():
        table, *rest = path
        if table in _LISTS and len(rest) == 2:
            name = document.values[str(table)][rest[0]].get(_LISTS[str(table)])
            said[f"{table}.{name}.{_known(rest[1])}"] = f"{document.name}:{position.line}"
        elif len(rest) == 1:
            said[f"{table}.{_known(rest[0])}"] = f"{document.name}:{position.line}"
    for section in ("server", "defaults"):
        said |= {f"{section}.{key}": f"environment {prefix}{key.upper()}" for key in variables}
        said |= {f"{section}.{key}": f"option --{key.replace('_', '-')}" for key in flags}
    return said


def _known(key: object) -> str:
    return ALIASES.get(str(key), str(key))


def of_model(model: ModelSettings, settings: Settings) -> Iterator[Sourced]:
    """All settings of a model."""
    usual = model_keys(settings.defaults)
    for key, value in model_keys(model).items():
        source = settings.sources.get(f"models.{model.id}.{key}")
        if source is None and value != usual.get(key):
            source = _beside(model, key)
        yield Sourced(key, value, source or settings.sources.get(f"defaults.{key}", DEFAULT))


def _beside(model: ModelSettings, key: str) -> str:
    if model.revision is not None:
        return "the cluster"
    if key in _PLACE:
        return "the model's file"
    if model.foreign is not None:
        return str(model.foreign.file)
    file = settings_file(model.path)
    return str(file) if model.scanned and file.is_file() else "said by a load"


def of_daemon(settings: Settings) -> Iterator[Sourced]:
    """All settings but those of models; what is secret is not shown."""
    said = settings.sources

    def of(table: str, keys: Mapping[str, Any]) -> Iterator[Sourced]:
        return (Sourced(f"{table}.{key}", value, said.get(f"{table}.{key}", DEFAULT)) for key, value in keys.items())

    yield from of("server", server_keys(settings))
    defaults = {key: value for key, value in model_keys(settings.defaults).items() if key not in (*_PLACE, "description")}
    yield from of("defaults", defaults | bound_keys(settings))
    auth = settings.auth
    yield from of("auth", {"enabled": auth.enabled, "protect_metrics": auth.protect_metrics})
    where = said.get("auth.api_keys", "the configuration")
    for number, key in enumerate(auth.keys):
        yield Sourced(f"auth.api_keys.{key.name or number}", {"role": key.role.name.lower(), "key": SECRET}, where)
    if auth.jwt is not None:
        yield Sourced("auth.jwt", {"algorithm": auth.jwt.algorithm, "secret": SECRET}, said.get("auth.jwt", "the configuration"))
    for pipeline in settings.pipelines:
        yield from of(f"pipelines.{pipeline.id}", pipeline_keys(pipeline))
    for stream in settings.streams:
        yield from of(f"streams.{stream.name}", stream_keys(stream))
    yield from of("cluster", cluster_keys(settings.cluster))


def of_all(settings: Settings, models: Iterable[tuple[str, Iterable[Sourced]]]) -> Iterator[Sourced]:
    """Of the daemon; and of each model, given with all its settings, what is not as all models have it."""
    yield from of_daemon(settings)
    usual = {DEFAULT, *(source for key, source in settings.sources.items() if key.startswith("defaults."))}
    for name, own in models:
        yield from (one._replace(key=f"models.{name}.{one.key}") for one in own if one.source not in usual)
