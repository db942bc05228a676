"""What the verbs print, from fixed answers of the daemon to golden files; and the rules of colours, symbols and widths."""

import time
from collections.abc import Iterator

import pytest

from tests.cli import states
from tests.cli.golden_files import assert_golden
from wakeful.cli import explain, figures, ps_table
from wakeful.cli.events import table
from wakeful.cli.looks import Looks, printable, speaks_unicode, wants_colour

PLAIN, RICH = Looks(unicode=True), Looks(colour=True, unicode=True, width=80)


@pytest.fixture(autouse=True)
def at_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("name", "looks", "options"),
    [
        ("ps.txt", PLAIN, {}),
        ("ps_ascii.txt", Looks(), {}),
        ("ps_all.txt", PLAIN, {"everything": True}),
        ("ps_wide.txt", PLAIN, {"wide": True}),
        ("ps_by_memory.txt", PLAIN, {"order": "memory"}),
        ("ps_colour.txt", RICH, {}),
        ("ps_narrow.txt", PLAIN._replace(width=70), {}),
    ],
)
def test_ps(name: str, looks: Looks, options: dict[str, object]) -> None:
    assert_golden(name, text(ps_table.page(states.EXAMPLE, looks, **options)))  # type: ignore[arg-type]


def test_what_failed_says_when_it_is_tried_again() -> None:
    failed = {"error": "cut short", "state": "failed", "pipeline": False, "pinned": False}
    assert ps_table.trouble(failed | {"retry_in": 12.0}) == "cut short; next try in 12 s"
    assert ps_table.trouble(failed | {"retry_in": 0.0}) == "cut short; next try when it is asked for"
    assert (figures.sleeps(failed | {"retry_in": 12.0}), figures.sleeps(failed | {"retry_in": 0.0})) == ("12 s", "-")


def test_ps_without_models() -> None:
    assert_golden("ps_none.txt", text(ps_table.page(states.state() | {"last": None}, PLAIN)))


def test_off_a_terminal_nothing_is_cut() -> None:
    name = "a-name-that-is-much-longer-than-any-column-of-a-terminal-would-ever-be-wide-enough-for"
    state = states.state(states.BUSY | {"key": name}, states.READY)
    assert name in text(ps_table.page(state, PLAIN))
    narrow = ps_table.page(state, PLAIN._replace(width=80))
    assert name not in text(narrow)
    assert all(len(line) <= 80 for line in narrow[:3])


def test_every_order_is_of_all_models() -> None:
    for order in ps_table.ORDERS:
        shown = ps_table.chosen(states.EXAMPLE, everything=True, order=order)
        assert len(shown) == len(states.EXAMPLE["models"]), order
    assert [one["key"] for one in ps_table.chosen(states.EXAMPLE, everything=True, order="memory")][:2] == ["search-embedder", "resnet50"]
    assert [one["key"] for one in ps_table.chosen(states.EXAMPLE, everything=True, find="TITLE")] == ["titles", "titles-tokenizer"]


def test_events() -> None:
    events = [
        states.EVICTED | {"seq": 4810, "time": 50531.204, "kind": "scale", "model": "search-embedder", "text": "2 to 3 replicas: queue 11 > 8"},
        states.EVICTED,
        states.EVICTED | {"seq": 4812, "time": 50531.252, "kind": "config", "model": "", "text": "memory.oom.group is 1"},
    ]
    assert_golden("events.txt", text(table(events)))
    assert_golden("events_figures.txt", text(table(events[1:2], figures=True)))


def test_explain() -> None:
    answer = {
        "model": "titles", "state": "asleep", "since": 50531.0,
        "text": "titles is asleep since 14:02:11 (3 m). A request would wake it in about 45 ms.",
        "lines": [
            {"label": "because", "text": "evicted (event 4811) for search-embedder #2, which needed 104 MiB; free were 65 of 512. Least used"},
            {"label": "batching", "text": "on: axis 0 is free everywhere, self-test passed; waits 0 to 2 ms"},
        ],
        "plan": {"text": "would wake titles: needs 61 MiB (measured), free 22 of 512 MiB\nwould evict resnet50 (118 MiB): least recently used"},
    }
    assert_golden("explain.txt", text(list(explain.page(answer, PLAIN))))
    assert_golden("explain_80.txt", text(list(explain.page(answer, PLAIN._replace(width=80)))))


@pytest.mark.parametrize(
    ("choice", "environ", "terminal", "colour"),
    [
        ("auto", {}, True, True), ("auto", {}, False, False), ("auto", {"TERM": "dumb"}, True, False), ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True), ("auto", {"FORCE_COLOR": "1"}, False, True), ("auto", {"CLICOLOR_FORCE": "1"}, False, True),
        ("auto", {"CLICOLOR_FORCE": "0"}, False, False), ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("auto", {"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
        ("always", {"NO_COLOR": "1"}, False, True), ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colours(choice: str, environ: dict[str, str], terminal: bool, colour: bool) -> None:
    assert wants_colour(choice, environ, terminal=terminal) is colour  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environ", "encoding", "unicode"),
    [
        ({"LANG": "de_DE.UTF-8"}, "utf-8", True), ({"LC_ALL": "C"}, "utf-8", False), ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, "utf-8", False),
        ({"LC_CTYPE": "C.UTF-8"}, "utf-8", True), ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, "utf-8", False), ({}, "utf-8", False),
        ({"LANG": "en_US.utf8"}, "UTF-8", True), ({"LANG": "de_DE.UTF-8"}, "iso-8859-1", False), ({"LANG": "de_DE.ISO-8859-1"}, "utf-8", False),
    ],
)
def test_symbols(environ: dict[str, str], encoding: str, unicode: bool) -> None:
    assert speaks_unicode(environ, encoding) is unicode


def test_names_cannot_steer_a_terminal() -> None:
    assert printable("a\x1b[2Jb\nc") == "a?[2Jb c"
    state = states.state(states.READY | {"key": "a\x1b[2J"})
    assert "\x1b" not in text(ps_table.page(state, PLAIN))


def test_figures() -> None:
    assert figures.of_budget(490 << 20, 512 << 20) == "490 of 512 MiB"
    assert figures.of_budget(490 << 20, 2 << 30) == "490 MiB of 2.0 GiB"
    assert [figures.rate(value) for value in (None, 0.0, 0.01, 3.14, 812.4)] == ["-", "0", "0", "3.1", "812"]
    many = states.model("m", "ready", replicas=states.replicas(*["ready"] * 12))
    assert figures.dots(many, Looks()) == "********+ 12"
