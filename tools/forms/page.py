"""Every schema as a file, and docs/reference/json.md, on which people read them."""

import json
from collections.abc import Iterator
from pathlib import Path

from tools.forms.routes import ROUTES
from tools.forms.schema import MEANINGS, Schema
from tools.forms.verbs import FAILURE, VERBS, envelope

ROOT = Path(__file__).parents[2]
FOLDER = "docs/reference/json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
INTRODUCTION = """\
# JSON

<!-- Made by `python -m tools.forms`; a test holds it up to date, and another holds the schemas against what a daemon answers. -->

What the [routes](../http.md) below `/wakeful/v1` answer, and what the [verbs](../cli.md) print with `--json`. Bytes are bytes, times are seconds, and
since 1970 where they are points of time; null is what is not known, or does not apply. Fields are added, and never come to mean something else, so a
program must not mind a field that it does not know. Each form has a JSON Schema.
"""


def files() -> dict[str, str]:
    """Text by path from the root."""
    made = {f"{FOLDER}/routes/{name}.json": schema for name, (_, schema) in ROUTES.items()}
    made |= {f"{FOLDER}/verbs/{kind}.json": envelope(kind, data) for kind, data in VERBS.items()} | {f"{FOLDER}/verbs/error.json": FAILURE}
    texts = {name: json.dumps({"$schema": DIALECT} | schema, indent=1, ensure_ascii=False) + "\n" for name, schema in made.items()}
    return texts | {"docs/reference/json.md": page()}


def page() -> str:
    routes = [f"| `{route}` | {_link(schema)} | [routes/{name}.json](json/routes/{name}.json) |" for name, (route, schema) in ROUTES.items()]
    verbs = [f"| `{kind}` | {_link(schema)} | [verbs/{kind}.json](json/verbs/{kind}.json) |" for kind, schema in VERBS.items()]
    verbs.append(f"| without an answer | {_link(FAILURE)} | [verbs/error.json](json/verbs/error.json) |")
    shown: dict[str, Schema] = {}
    for schema in [*(schema for _, schema in ROUTES.values()), *VERBS.values(), FAILURE]:
        _collect(schema, shown)
    return "\n".join([
        INTRODUCTION, "## Routes", "", "| route | form | schema |", "|---|---|---|", *routes, "",
        "## Verbs", "", 'Each prints `{"wakeful": 1, "kind": KIND, "data": ...}`.', "",
        "| kind | data | schema |", "|---|---|---|", *verbs, "",
        *(line for title, schema in shown.items() for line in _section(title, schema)),
    ])


def _collect(schema: Schema, found: dict[str, Schema]) -> None:
    """Every object that has a title, in the order in which people meet it; where one has a whole and parts of it, the whole."""
    if "title" in schema and not found.get(schema["title"], {}).get("required"):
        found[schema["title"]] = schema
    for inner in _parts(schema):
        _collect(inner, found)


def _parts(schema: Schema) -> Iterator[Schema]:
    yield from schema.get("properties", {}).values()
    yield from schema.get("anyOf", ())
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield schema[key]


def _section(title: str, schema: Schema) -> Iterator[str]:
    yield from (f"## {title.capitalize()}", "", MEANINGS[title], "", "| field | type | meaning |", "|---|---|---|")
    yield from _rows(schema, "")
    yield ""


def _rows(schema: Schema, before: str) -> Iterator[str]:
    """A field each; those of objects without a title behind it."""
    for name, field in schema["properties"].items():
        missing = "" if name in schema["required"] else ", may be missing"
        yield f"| `{before}{name}` | {_kind(field)}{missing} | {field['description']} |"
        inner, path = _inner(field, f"{before}{name}")
        if inner is not None:
            yield from _rows(inner, f"{path}.")


def _inner(field: Schema, path: str) -> tuple[Schema | None, str]:
    """The nameless object that a field holds, or an array of such."""
    if "properties" in field:
        return (None if "title" in field else field), path
    if isinstance(field.get("items"), dict):
        return _inner(field["items"], f"{path}[]")
    if isinstance(field.get("additionalProperties"), dict):
        return _inner(field["additionalProperties"], f"{path}.*")
    options = [one for one in field.get("anyOf", ()) if one.get("type") != "null"]
    return _inner(options[0], path) if options else (None, path)


def _kind(field: Schema) -> str:
    if "title" in field:
        return _link(field)
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return " or ".join("null" if word is None else f"`{word}`" for word in field["enum"])
    if "anyOf" in field:
        return " or ".join(_kind(one) for one in field["anyOf"])
    kinds = field.get("type", "anything")
    text = " or ".join(kinds) if isinstance(kinds, list) else kinds
    if isinstance(field.get("items"), dict):
        text = text.replace("array", f"array of {_kind(field['items'])}", 1)
    elif isinstance(field.get("additionalProperties"), dict) and field["additionalProperties"]:
        text = f"object of {_kind(field['additionalProperties'])}"
    return f"{text}, {field['x-unit']}" if "x-unit" in field else text


def _link(schema: Schema) -> str:
    return f"[{schema['title']}](#{schema['title'].replace(' ', '-')})"
