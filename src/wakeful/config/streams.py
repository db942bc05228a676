"""[[streams]] to settings."""

from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any

from wakeful.config.document import Document
from wakeful.config.locate import KeyPath, dotted
from wakeful.config.problems import Problem
from wakeful.config.schema import StreamTable
from wakeful.config.settings import StreamSettings
from wakeful.config.validate import validate

_LIBRARIES = {"redis": "redis", "rabbitmq": "aio_pika", "kafka": "aiokafka"}
"""Broker, which is also the name of the extra, to the module that it needs."""
_ADDRESSES = {"redis": ("redis://", "rediss://", "unix://"), "rabbitmq": ("amqp://", "amqps://"), "kafka": ()}
"""How endpoints begin; those of Kafka are bare."""


def stream_settings(
    document: Document, models: Collection[str], environ: Mapping[str, str], report: list[Problem]
) -> tuple[StreamSettings, ...]:
    """All of them. `models` are the ids of those that are configured or were found."""
    entries = document.values.get("streams", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        hint = "each stream begins with [[streams]], in double brackets"
        report.append(Problem("wrong-type", "`streams` must be a list of tables", document.place(("streams",)), "streams", hint))
        return ()
    streams: dict[str, StreamSettings] = {}
    for index, entry in enumerate(entries):
        here: KeyPath = ("streams", index)
        table = validate(StreamTable, entry, "[[streams]]", document.place, report, base=here)
        if table is None:
            continue
        if table.name in streams:
            message = f'the name "{table.name}" is taken by an earlier stream'
            report.append(Problem("duplicate-id", message, document.place((*here, "name")), dotted((*here, "name")), "give each a `name`"))
        stream = streams[table.name] = _settings(document, here, table, environ, report)
        _check(document, here, stream, models, report)
    return tuple(streams.values())


def _settings(document: Document, here: KeyPath, table: StreamTable, environ: Mapping[str, str], report: list[Problem]) -> StreamSettings:
    values: dict[str, Any] = dict(table)
    if (variable := table.endpoint_env) is not None:
        where, key = document.place((*here, "endpoint_env")), dotted((*here, "endpoint_env"))
        values["endpoint"] = environ.get(variable, "").strip()
        if "endpoint" in table.model_fields_set:
            report.append(Problem("conflict", "`endpoint` and `endpoint_env` are both given: leave one out", where, key))
        elif not values["endpoint"]:
            report.append(Problem("missing-variable", f"the environment variable {variable} is not set, or empty", where, key))
    return StreamSettings(**values)


def _check(document: Document, here: KeyPath, stream: StreamSettings, models: Collection[str], report: list[Problem]) -> None:
    def tell(code: str, message: str, key: str, hint: str | None = None, **more: Any) -> None:
        report.append(Problem(code, message, document.place((*here, key)), dotted((*here, key)), hint, **more))

    if find_spec(_LIBRARIES[stream.broker]) is None:
        hint = f"pip install 'wakeful[{stream.broker}]'"
        tell("missing-library", f"streams of {stream.broker} need the library {_LIBRARIES[stream.broker]}, which is not installed", "broker", hint)
    schemes = _ADDRESSES[stream.broker]
    if stream.endpoint and not (stream.endpoint.startswith(schemes) if schemes else "://" not in stream.endpoint):
        wanted = f"begin with {' or '.join(schemes)}" if schemes else "be HOST:PORT, or several of them with commas"
        key = "endpoint" if stream.endpoint_env is None else "endpoint_env"
        tell("wrong-value", f"an endpoint of {stream.broker} must {wanted}", key)
    for key in ("output_topic", "error_topic"):
        if getattr(stream, key) == stream.input_topic:
            tell("conflict", f"`{key}` is the input_topic: what is published there would be read as a request", key)
    if stream.model_id is not None and stream.model_id not in models:
        message = f"no model is called `{stream.model_id}`: until there is one, messages that name none become dead letters"
        tell("missing-model", message, "model_id", severity="warning")
