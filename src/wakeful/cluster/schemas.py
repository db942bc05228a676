"""The daemon's tables as schemas of the API server, so that it refuses what the daemon's own loader would, and names the field.

Defaults are left out: the API server would write them into the object, where they would go before those of the Server.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from wakeful.config.schema import ALIASES, ApiKeyTable, AuthTable, DefaultsTable, JwtTable, ModelTable, ServerTable, Table

Schema = dict[str, Any]


class Rule(NamedTuple):
    """A condition in CEL, what is said where it does not hold, and which field that is about, below the rule's own."""

    rule: str
    message: str
    field: str = ""

    def written(self) -> Schema:
        return {"rule": self.rule, "message": self.message} | ({"fieldPath": self.field} if self.field else {})


INT_OR_TEXT: Schema = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}
"""Where a key takes values of kinds that no schema of the API server has together; the daemon's loader looks at them."""
_AS_WRITTEN: Mapping[str, Schema] = {"role": {"type": "string"}, "threads": INT_OR_TEXT, "versions": ANYTHING, "grpc_port": ANYTHING}
"""Keys that people write in another kind than the daemon keeps them in; sizes besides, which their `form` tells."""
_KEPT = ("type", "minimum", "maximum", "minLength", "maxLength", "pattern", "enum")

NOT_OF_A_MODEL = frozenset({"id", "path", "backend", "pinned"})
"""Keys of [[models]] that a Model has fields of its own for."""
NOT_OF_A_SERVER = frozenset({"host", "insecure", "models_dir", "cache_dir", "tls_cert", "tls_key"})
"""Keys of [server] that follow from the pod."""
SECRETS = frozenset({"key", "secret"})
"""They would lie in the open; `key_env` and `secret_env` name variables that come from a Secret."""


def serving_schema() -> Schema:
    """`Model.spec.serving`: the keys of [[models]]."""
    return _table(ModelTable, NOT_OF_A_MODEL)


def config_schema() -> Schema:
    """`Server.spec.config`: the tables of the daemon's file that are right for every one of its models."""
    auth = _table(AuthTable)
    auth["properties"] |= {"api_keys": {"type": "array", "items": _table(ApiKeyTable, SECRETS)}, "jwt": _table(JwtTable, SECRETS)}
    tables = {"server": _table(ServerTable, NOT_OF_A_SERVER), "defaults": _table(DefaultsTable), "auth": auth}
    return {"type": "object", "properties": tables}


def _table(table: type[Table], without: Collection[str] = ()) -> Schema:
    whole = table.model_json_schema()
    made = _converted(whole, whole.get("$defs", {}), "")
    made["properties"] = {key: inner for key, inner in made["properties"].items() if key not in without}
    if "required" in made:
        made["required"] = [key for key in made["required"] if key not in without]
    return {key: value for key, value in made.items() if value}


def _converted(schema: Mapping[str, Any], shared: Mapping[str, Any], key: str) -> Schema:
    """JSON Schema as pydantic writes it to what the API server calls structural."""
    if "$ref" in schema:
        return _described(_converted(shared[schema["$ref"].rpartition("/")[2]], shared, key), schema)
    if (written := _as_written(schema, key)) is not None:
        return _described(written, schema)
    if "anyOf" in schema:
        (given,) = (one for one in schema["anyOf"] if one != {"type": "null"})
        return _described(_converted(given, shared, key), schema)
    made: Schema = {name: schema[name] for name in _KEPT if name in schema}
    for name, bound in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if bound in schema:
            made |= {name: schema[bound], bound: True}
    if "items" in schema:
        made["items"] = _converted(schema["items"], shared, "")
    if isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = _converted(schema["additionalProperties"], shared, "")
    if "properties" in schema:
        made["properties"] = {name: _converted(inner, shared, name) for name, inner in schema["properties"].items()}
        made["properties"] |= {alias: made["properties"][name] for alias, name in ALIASES.items() if name in made["properties"]}
    if "required" in schema:
        made["required"] = list(schema["required"])
    return _described(made, schema)


def _as_written(schema: Mapping[str, Any], key: str) -> Schema | None:
    if str(schema.get("form", "")).startswith("size"):
        return dict(INT_OR_TEXT)
    return dict(_AS_WRITTEN[key]) if key in _AS_WRITTEN else None


def _described(made: Schema, schema: Mapping[str, Any]) -> Schema:
    """With what the key means, for `kubectl explain`. What tables say of themselves is for readers of the code."""
    if "description" not in schema or made.get("properties"):
        return made
    unit = f" [{schema['unit']}]" if schema.get("unit") else ""
    return {"description": f"{schema['description']}{unit}", **made}
