"""What the documents say of events is what the code emits."""

import ast
from collections.abc import Iterator
from typing import get_args

from tests.docs.test_docs import ROOT
from wakeful.telemetry.event_kinds import MEANINGS, reference
from wakeful.telemetry.events import Kind

PASSED_ON = {"_evict"}
"""Functions that hand their keywords on to an event, of the kind of their own."""


def calls() -> Iterator[tuple[str, str, set[str]]]:
    """Where an event is made, its kind, and the names of its figures."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            names, at = {keyword.arg for keyword in node.keywords if keyword.arg is not None}, f"{path.name}:{node.lineno}"
            if node.func.attr == "emit" and isinstance(node.args[0], ast.Constant):
                yield at, str(node.args[0].value), names
            elif node.func.attr in PASSED_ON:
                yield at, "evict", names


def test_every_kind_has_a_meaning() -> None:
    assert set(MEANINGS) == set(get_args(Kind))


def test_every_figure_of_an_event_is_explained_and_none_besides() -> None:
    emitted: dict[str, set[str]] = {kind: set() for kind in MEANINGS}
    for at, kind, names in calls():
        assert names <= set(MEANINGS[kind].figures), at  # type: ignore[index]  # a kind that is not there is a failure, too
        emitted[kind] |= names
    emitted["refuse"].add("suppressed")  # by the collection of events itself
    assert {kind: set(meaning.figures) for kind, meaning in MEANINGS.items()} == emitted


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "events.md").read_text("utf-8") == reference(), "run: make docs"
