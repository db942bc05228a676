"""The routes as an OpenAPI 3.1 document, for programs that write clients, or that try what a server cannot take."""

import re
from collections.abc import Iterable
from typing import Any, get_args

import msgspec

from wakeful import __version__
from wakeful.config.settings import Role
from wakeful.frontends.http.connection import Connection
from wakeful.frontends.http.errors import STATUS
from wakeful.frontends.http.head import Head
from wakeful.frontends.http.routes import Entry
from wakeful.frontends.wording import Dialect
from wakeful.telemetry.events import Kind
from wakeful.tensors import DTYPES, Buffer

Schema = dict[str, Any]

_TENSOR: Schema = {
    "type": "object",
    "required": ["name", "shape"],
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "maxItems": 64, "items": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}},
        "datatype": {"enum": list(DTYPES)},
        "data": {"type": "array", "description": "Flat, or nested as the shape says."},
        "parameters": {"type": "object"},
    },
}
_UPLOAD: Schema = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": {"type": "string", "format": "binary"}, "model_id": {"type": "string"}, "overwrite": {"type": "boolean"}},
    "additionalProperties": {"type": "string", "description": "A key of [[models]]."},
}
_TYPED: Schema = _TENSOR | {"required": ["name", "shape", "datatype"]}
_OUTPUT: Schema = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "parameters": {"type": "object"}}}
_TOKENS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}}
_SCALARS: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}


def _listing(key: str) -> Schema:
    return {
        "type": "object",
        "properties": {"object": {"const": "list"}, key: {"type": "array", "items": {"type": "object"}}, "usage": {"type": "object"}},
    }


SCHEMAS: dict[str, Schema] = {
    "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
    "InferRequest": {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "inputs": {"type": "array", "items": _TYPED},
            "outputs": {"type": "array", "items": _OUTPUT},
            "parameters": _SCALARS,
        },
    },
    "InferResponse": {
        "type": "object",
        "required": ["model_name", "outputs"],
        "properties": {"model_name": {"type": "string"}, "id": {"type": "string"}, "outputs": {"type": "array", "items": _TYPED}},
    },
    "SnoozeInferRequest": {"type": "object", "required": ["inputs"], "properties": {"inputs": {"type": "array", "items": _TENSOR}}},
    "SnoozeInferResponse": {
        "type": "object",
        "required": ["model_id", "outputs", "duration_ms"],
        "properties": {
            "model_id": {"type": "string"}, "outputs": {"type": "array", "items": _TENSOR}, "duration_ms": {"type": "number", "minimum": 0},
        },
    },
}
SCHEMAS |= {
    "OpenAIError": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {"type": "string"}, "type": {"type": "string"}, "param": {"type": ["string", "null"]}, "code": {"type": "string"},
                },
            },
        },
    },
    "EmbeddingRequest": {
        "type": "object",
        "required": ["model", "input"],
        "properties": {
            "model": {"type": "string"},
            "input": {
                "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, _TOKENS, {"type": "array", "items": _TOKENS}],
            },
            "encoding_format": {"enum": ["float", "base64"]},
            "dimensions": {"type": "integer", "minimum": 1},
        },
    },
    "EmbeddingResponse": _listing("data") | {"required": ["object", "data", "model", "usage"]},
    "RerankRequest": {
        "type": "object",
        "required": ["model", "query", "documents"],
        "properties": {
            "model": {"type": "string"},
            "query": {"type": "string"},
            "documents": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["text"]}]}},
            "top_n": {"type": "integer", "minimum": 1},
            "return_documents": {"type": "boolean"},
        },
    },
    "RerankResponse": _listing("results") | {"required": ["object", "results", "model", "usage"]},
}
_BODIES: dict[str, tuple[str, str]] = {
    "/v2/models/{model}[/versions/{version}]/infer": ("InferRequest", "InferResponse"),
    "/v1/models/{model}/infer": ("SnoozeInferRequest", "SnoozeInferResponse"),
    "[/openai]/v1/embeddings": ("EmbeddingRequest", "EmbeddingResponse"),
    "[/openai]/v1/rerank": ("RerankRequest", "RerankResponse"),
}
_TAGS: dict[Dialect, str] = {"oip": "Open Inference Protocol", "snooze": "SnoozeML", "openai": "OpenAI", "wakeful": "Wakeful"}
_TRANSPORT = (405, 408, 415, 431)
"""Of HTTP itself, in every dialect."""
_QUERY: dict[str, Schema] = {
    "since": {"type": "integer", "minimum": 0}, "limit": {"type": "integer", "minimum": 0}, "model": {"type": "string"},
    "kind": {"enum": list(get_args(Kind))},
}
_OPTIONAL = re.compile(r"\[(.*?)]")


def described(entries: list[Entry], *, secured: bool) -> list[Entry]:
    """A table, and a route that describes it. `secured`: callers need keys."""
    text = b""

    def answer(connection: Connection, _head: Head, _body: Buffer) -> None:
        connection.respond_json(text)

    whole = [*entries, Entry("GET", "/openapi.json", Role.READ_ONLY, "snooze", answer, "These routes for programs: OpenAPI")]
    text = msgspec.json.encode(document(whole, secured=secured))
    return whole


def document(entries: Iterable[Entry], *, secured: bool) -> Schema:
    paths: dict[str, Schema] = {}
    for entry in entries:
        for path in _spellings(entry.path):
            paths.setdefault(path, {})[entry.method.lower()] = _operation(entry, path, secured=secured)
    schemes = {"bearer": {"type": "http", "scheme": "bearer"}, "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Wakeful", "version": __version__, "description": "Open Inference Protocol, SnoozeML's API, and OpenAI's for embeddings."},
        "paths": paths,
        "components": {"schemas": SCHEMAS} | ({"securitySchemes": schemes} if secured else {}),
    }


def _spellings(path: str) -> list[str]:
    """With what may be left out, and without."""
    return sorted({_OPTIONAL.sub("", path), _OPTIONAL.sub(r"\1", path)})


def _operation(entry: Entry, path: str, *, secured: bool) -> Schema:
    operation: Schema = {
        "operationId": re.sub(r"\W+", "_", f"{entry.method} {path}").strip("_").lower(),
        "summary": entry.what,
        "tags": [_TAGS[entry.dialect]],
        "responses": _responses(entry),
    }
    if names := re.findall(r"{(\w+)}", path):
        operation["parameters"] = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    if entry.path in _BODIES:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _named(_BODIES[entry.path][0])}}}
    elif entry.streams:
        operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _UPLOAD}}}
    elif entry.method == "POST":
        operation["requestBody"] = {"required": False, "content": {"application/json": {"schema": {"type": "object"}}}}
    if entry.path == "/v1/events":
        operation["parameters"] = [{"name": name, "in": "query", "schema": schema} for name, schema in _QUERY.items()]
    if secured and entry.role is not None:
        operation["security"] = [{"bearer": []}, {"key": []}]
    return operation


def _responses(entry: Entry) -> Schema:
    schema = _named(_BODIES[entry.path][1]) if entry.path in _BODIES else {}
    kind = "text/plain" if entry.path == "/metrics" else "application/json"
    answers: Schema = {"200": {"description": entry.what, "content": {kind: {"schema": schema}}}}
    error = "OpenAIError" if entry.dialect == "openai" else "Error"
    for status in sorted({*STATUS[entry.dialect].values(), *_TRANSPORT}):
        answers[str(status)] = {"description": "see the page of errors", "content": {"application/json": {"schema": _named(error)}}}
    return answers


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
