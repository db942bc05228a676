"""Every key path that the parsers know has a position, and at that position stands the key."""

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.config.locate import KeyPath, locate_json, locate_toml

TRICKY = '''\
# a comment with [brackets] and = signs
title = "a # no comment"   # one
"quoted \\u0041" = 'lit # eral'
dotted . "key.with.dots" = 1979-05-27 07:32:00
text = """
[not.a.table]
key = "no" \\""" still""""
raw = \'\'\'
it's [[x]]\'\'\'
list = [
  1, 2, # [
  { a = 1, b.c = [ "]" ] }, [],
]

[a.b]
x = inf
[[models]]
id = "first"
[models.pad]
axis = 1
[[models]]
  id = "second"
  pad = { axis = 2, mask = "}" }
[[models.parts]]
k = 1
[[models.parts]]
k = 2
'''


def paths(values: Any, path: KeyPath = ()) -> list[KeyPath]:
    items: Any = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [found for key, value in items for found in [(*path, key), *paths(value, (*path, key))]]


def test_every_key_of_a_tricky_file() -> None:
    found = locate_toml(TRICKY)
    assert set(found) == set(paths(tomllib.loads(TRICKY)))
    lines = TRICKY.split("\n")
    for path, position in found.items():
        key = path[-1]
        written = lines[position.line - 1][position.column - 1 :][: position.width]
        if isinstance(key, str):
            assert written == key or tomllib.loads(f"k = {written}")["k"] == key


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        (("title",), 2, 1), (("dotted",), 4, 1), (("dotted", "key.with.dots"), 4, 10), (("list", 1), 11, 6), (("list", 2, "b", "c"), 12, 14),
        (("a", "b", "x"), 16, 1), (("models",), 17, 3), (("models", 0), 17, 3), (("models", 0, "pad", "axis"), 20, 1),
        (("models", 1), 21, 3), (("models", 1, "id"), 22, 3), (("models", 1, "pad", "mask"), 23, 21), (("models", 1, "parts", 1, "k"), 27, 1),
    ],
)
def test_positions(path: KeyPath, line: int, column: int) -> None:
    position = locate_toml(TRICKY)[path]
    assert (position.line, position.column) == (line, column)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), values, max_size=4), st.sampled_from([None, 2]))
def test_every_key_of_any_json(document: dict[str, Any], indent: int | None) -> None:
    assert set(locate_json(json.dumps(document, indent=indent))) == set(paths(document))


keys = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=5)
inline = st.recursive(
    st.integers() | st.booleans() | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@given(st.lists(st.dictionaries(keys, inline, max_size=3), max_size=3))
def test_every_key_of_any_list_of_tables(models: list[dict[str, Any]]) -> None:
    text = "".join("[[models]]\n" + "".join(f"{toml(key)} = {toml(value)} # {{\n" for key, value in table.items()) for table in models)
    assert set(locate_toml(text)) == set(paths(tomllib.loads(text)))
