"""The schema of models.toml as JSON Schema, for editors that complete and check. `check` knows more: what does not go together.

`python -m wakeful.config.json_schema > docs/reference/models.schema.json`
"""

import json
import sys
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

_SIZE = r"^\s*[0-9]{1,18}(\.[0-9]{1,9})?\s*(|[kKmMgGtT]?[bB]|[kKmMgGtT][iI][bB]?)\s*$"
_LIMIT = _SIZE.replace("[bB]?)", "[bB]?|%)", 1)
_VERSION: Schema = {"type": "integer", "minimum": 1}
_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
_WRITTEN: Mapping[str, Schema] = {
    "role": {"enum": [role.name.lower() for role in Role]},
    "threads": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 1024}, {"const": "auto"}]},
    "versions": {"anyOf": [{"enum": ["latest", "all"]}, _VERSION, {"type": "array", "items": _VERSION}]},
    "grpc_port": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 65535}, {"const": False}]},
    "controllers": {"anyOf": [{"type": "string"}, _TEXTS]}, "capabilities": {"anyOf": [{"type": "string"}, _TEXTS]},
    "allowed_hosts": {"anyOf": [{"type": "string"}, _TEXTS]},
}
"""Keys that people write in another kind than the daemon keeps them in; sizes besides, which their `form` tells."""


def page() -> str:
    """The schema as a file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


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
        pattern = _LIMIT if "share" in schema["form"] else _SIZE
        return described | {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": pattern}]}
    if key in _WRITTEN:
        return described | _WRITTEN[key]
    return kept | described


if __name__ == "__main__":
    sys.stdout.write(page())
