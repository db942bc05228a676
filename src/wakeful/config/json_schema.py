"""The schema of models.toml as JSON Schema, for editors that complete and check. `check` knows more: what does not go together."""

from collections.abc import Mapping
from typing import Any

from wakeful.config.schema import (
    ALIASES,
    ApiKeyTable,
    AuthTable,
    ClusterTable,
    DefaultsTable,
    JwtTable,
    ModelTable,
    PipelineTable,
    ServerTable,
    StepTable,
    StreamTable,
    Table,
)
from wakeful.config.settings import Role

Schema = dict[str, Any]

_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
_WRITTEN: Mapping[str, Schema] = {
    "role": {"enum": [role.name.lower() for role in Role]}, "threads": {"type": ["integer", "string"]}, "versions": {},
    "grpc_port": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 65535}, {"const": False}]},
    "controllers": {"anyOf": [{"type": "string"}, _TEXTS]}, "capabilities": {"anyOf": [{"type": "string"}, _TEXTS]},
    "allowed_hosts": {"anyOf": [{"type": "string"}, _TEXTS]},
}
"""Keys that people write in another kind than the daemon keeps them in; sizes besides, which their `form` tells."""


def json_schema() -> Schema:
    shared: Schema = {}
    auth = _table(AuthTable, shared)
    auth["properties"] |= {"api_keys": {"type": "array", "items": _table(ApiKeyTable, shared)}, "jwt": _table(JwtTable, shared)}
    lists: dict[str, type[Table]] = {"models": ModelTable, "pipelines": PipelineTable, "streams": StreamTable}
    tables = {"server": _table(ServerTable, shared), "defaults": _table(DefaultsTable, shared)}
    tables |= {name: {"type": "array", "items": _table(table, shared)} for name, table in lists.items()}
    tables |= {"auth": auth, "cluster": _table(ClusterTable, shared)}
    tables["pipelines"]["items"]["properties"]["steps"] |= {"items": _table(StepTable, shared)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "models.toml of Wakeful", "type": "object", "properties": tables,
        "additionalProperties": False, "$defs": shared,
    }


def _table(table: type[Table], shared: Schema) -> Schema:
    whole = table.model_json_schema()
    shared |= {name: _as_written(inner) for name, inner in whole.pop("$defs", {}).items()}
    return _as_written(whole)


def _as_written(schema: Schema) -> Schema:
    """Properties as people may write them, without the names and the remarks that are for readers of the code."""
    if "properties" not in schema:
        return schema
    properties = {key: _property(key, inner) for key, inner in schema["properties"].items()}
    properties |= {alias: properties[key] for alias, key in ALIASES.items() if key in properties}
    return {"type": "object", "properties": properties, "additionalProperties": False} | (
        {"required": schema["required"]} if schema.get("required") else {}
    )


def _property(key: str, schema: Schema) -> Schema:
    kept = {name: value for name, value in schema.items() if name not in ("title", "unit", "form", "default")}
    unit = f" [{schema['unit']}]" if schema.get("unit") else ""
    described = {"description": f"{schema['description']}{unit}"} if "description" in schema else {}
    if str(schema.get("form", "")).startswith("size"):
        return described | {"type": ["integer", "string"]}
    if key in _WRITTEN:
        return described | _WRITTEN[key]
    return kept | described
