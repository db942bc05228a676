"""Words to write a JSON Schema with."""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]
Fields = Mapping[str, tuple[Schema, str]]
"""By name: what it is, and what it means."""

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BYTES: Schema = {"type": "integer", "minimum": 0, "x-unit": "bytes"}
SECONDS: Schema = {"type": "number", "minimum": 0, "x-unit": "s"}
TIME: Schema = {"type": "number", "x-unit": "s since 1970"}
RATE: Schema = {"type": "number", "minimum": 0, "x-unit": "/s"}
ANYTHING: Schema = {}
MEANINGS: dict[str, str] = {}
"""Of objects by their titles: where one stands as a field, it has the field's description instead of its own."""


def maybe(schema: Schema) -> Schema:
    """Or null: not known, or does not apply."""
    if "enum" in schema:
        return schema | {"enum": [*schema["enum"], None]}
    if isinstance(schema.get("type"), str) and "properties" not in schema:
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema


def word(*words: str) -> Schema:
    return {"enum": list(words)}


def many(items: Schema, count: int | None = None) -> Schema:
    return {"type": "array", "items": items} | ({} if count is None else {"minItems": count, "maxItems": count})


def by_name(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def table(title: str, meaning: str, fields: Fields, *, optional: Sequence[str] = ()) -> Schema:
    """An object. Without a title it is told where it stands, and not on its own. `optional`: fields that may be missing."""
    properties = {name: schema | {"description": text} for name, (schema, text) in fields.items()}
    MEANINGS[title] = meaning
    head: Schema = ({"title": title} if title else {}) | ({"description": meaning} if meaning else {})
    return head | {"type": "object", "properties": properties, "required": [name for name in fields if name not in optional]}


def inline(fields: Fields, *, optional: Sequence[str] = ()) -> Schema:
    return table("", "", fields, optional=optional)


def closed(schema: Any) -> Any:
    """The same, but no field may be there that it does not know: for tests. Programs shall not mind new ones."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return inner | {"additionalProperties": False} if "properties" in inner and "additionalProperties" not in inner else inner
