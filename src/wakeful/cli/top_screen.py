"""What `top` shows, and what keys do to it. Pure: from a state of the daemon, keys and sizes to lines of text and orders."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from wakeful.cli.figures import NONE, dots, latest_line, memory_of, of_budget, rate, span, word_of
from wakeful.cli.looks import Looks, printable
from wakeful.cli.ps_table import ORDERS, Column, Model, chosen, table
from wakeful.telemetry.units import counted, show_seconds

Mode = Literal["list", "find", "sure", "help", "details", "quit"]
VERBS: Mapping[str, str] = {"l": "load", "u": "unload", "p": "pin"}
SPARK = 8
"""Columns of the last minute."""
MINUTE = 60.0
BAR = 10
DISPENSABLE = ("ROWS", "LAST MIN", "P99", "REPLICAS")
"""Columns that go first where there is no room."""
HEAD = 3
"""Lines above the first model: title, problems or nothing, names of columns."""
FOOT = 2
KEYS = "move  enter why  l load  u unload  p pin  / find  s sort  space freeze  ? q"
HELP = (
    "up, down, j, k   another model; the mark stays with the model when the list changes",
    "enter            why the model is as it is; any key goes back",
    "l, u, p          load it, unload it, pin it or let it sleep again; y says yes",
    "/                only models whose names hold these letters; escape: all",
    "s                sort by " + ", ".join(ORDERS), "space            freeze the figures, and let them go again", "q                leave",
)


class Order(NamedTuple):
    """What a key asks the daemon to do."""

    verb: str
    model: str


@dataclass(frozen=True)
class Screen:
    mode: Mode = "list"
    selected: str = ""
    """A model's key."""
    find: str = ""
    sort: str = "name"
    frozen: bool = False
    pending: Order | None = None
    """Waits for a yes."""
    details: tuple[str, ...] = ()


@dataclass
class Minute:
    """What each model has answered in the last minute, from counters that were read at some times."""

    samples: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def add(self, now: float, models: Sequence[Model]) -> None:
        for model in models:
            kept = self.samples.setdefault(model["key"], deque())
            kept.append((now, model["done"] + model["failed"]))
            while now - kept[0][0] > MINUTE:
                kept.popleft()
        for key in self.samples.keys() - {model["key"] for model in models}:
            del self.samples[key]

    def bars(self, key: str, now: float, looks: Looks) -> str:
        """A sign for each part of the minute, the newest to the right: the fullest part is the highest."""
        parts = [0] * SPARK
        kept = list(self.samples.get(key, ()))
        for (_, before), (moment, count) in pairwise(kept):
            place = SPARK - 1 - int((now - moment) / (MINUTE / SPARK))
            if place >= 0:
                parts[place] += max(count - before, 0)  # a daemon that has started anew counts from 0
        signs, most = looks.symbol("bars"), max(parts)
        return "".join(signs[-(-part * (len(signs) - 1) // most)] if most else signs[0] for part in parts)


def shown(screen: Screen, state: Mapping[str, Any]) -> list[Model]:
    return chosen(state, everything=True, order=screen.sort, find=screen.find)


def press(screen: Screen, key: str, state: Mapping[str, Any]) -> tuple[Screen, Order | None]:
    """The screen after a key, and what it orders. The order `explain` fills the details."""
    if key == "ctrl-c":
        return replace(screen, mode="quit"), None
    if screen.mode in ("help", "details"):
        return replace(screen, mode="list", details=()), None
    if screen.mode == "sure":
        return replace(screen, mode="list", pending=None), screen.pending if key in ("y", "Y") else None
    if screen.mode == "find":
        return _typed(screen, key), None
    return _listed(screen, key, shown(screen, state))


def _typed(screen: Screen, key: str) -> Screen:
    if key == "escape":
        return replace(screen, mode="list", find="")
    if key == "enter":
        return replace(screen, mode="list")
    if key == "backspace":
        return replace(screen, find=screen.find[:-1])
    return replace(screen, find=screen.find + key) if len(key) == 1 else screen


def _listed(screen: Screen, key: str, models: Sequence[Model]) -> tuple[Screen, Order | None]:
    keys = [model["key"] for model in models]
    here = keys.index(screen.selected) if screen.selected in keys else 0
    if key in ("up", "k", "down", "j") and keys:
        step = -1 if key in ("up", "k") else 1
        return replace(screen, selected=keys[min(max(here + step, 0), len(keys) - 1)]), None
    if key in ("enter", *VERBS) and keys:
        if key == "enter":
            return replace(screen, selected=keys[here]), Order("explain", keys[here])
        verb = "unpin" if key == "p" and models[here]["pinned"] else VERBS[key]
        return replace(screen, selected=keys[here], mode="sure", pending=Order(verb, keys[here])), None
    if key == "s":
        orders = list(ORDERS)
        return replace(screen, sort=orders[(orders.index(screen.sort) + 1) % len(orders)]), None
    changes: Mapping[str, dict[str, Any]] = {
        "/": {"mode": "find", "find": ""}, "?": {"mode": "help"}, "q": {"mode": "quit"}, " ": {"frozen": not screen.frozen}, "escape": {"find": ""},
    }
    return replace(screen, **changes.get(key, {})), None


def draw(screen: Screen, state: Mapping[str, Any], minute: Minute, now: float, looks: Looks, height: int, note: str = "") -> list[str]:
    """As many lines as the terminal has, none wider than it. `note`: what the last order came to, or what is wrong with the daemon."""
    width = looks.width or 80
    if screen.mode in ("help", "details"):
        lines = list(HELP if screen.mode == "help" else screen.details)
        return _filled([looks.cut(line, width) for line in lines], [looks.cut("any key goes back", width)], height)
    models = shown(screen, state)
    rows = _rows(models, minute, now, looks._replace(colour=False, width=width - 2), width - 2)
    head = [looks.cut(title(state, looks), width), looks.cut(_problem(state), width), looks.cut(f"  {rows[0]}", width)]
    room = max(height - HEAD - FOOT, 1)
    keys = [model["key"] for model in models]
    here = keys.index(screen.selected) if screen.selected in keys else 0
    first = min(max(here - room + 1, 0), max(len(keys) - room, 0))
    body = [
        _row(looks.cut(row, width - 2), word_of(model), looks, selected=place == here)
        for place, (row, model) in enumerate(zip(rows[1:], models, strict=True))
    ][first : first + room]
    foot = [looks.cut(note or (latest_line(state["last"]) if state["last"] else ""), width), looks.cut(_prompt(screen, models, looks), width)]
    return _filled([*head, *body], foot, height)


def _rows(models: Sequence[Model], minute: Minute, now: float, looks: Looks, width: int) -> list[str]:
    """The table, without columns that a narrow terminal has no room for."""
    columns = list(_columns(minute, now))
    rows = table(models, looks, columns)
    for title in DISPENSABLE:
        if max(map(len, rows)) <= width:
            break
        columns = [column for column in columns if column.title != title]
        rows = table(models, looks, columns)
    return rows


def _columns(minute: Minute, now: float) -> tuple[Column, ...]:
    return (
        Column("MODEL", lambda model, _: printable(model["key"]), right=False), Column("STATE", lambda model, _: word_of(model), right=False),
        Column("REPLICAS", dots, right=False), Column("QUEUE", lambda model, _: str(model["queue"])),
        Column("LAST MIN", lambda model, looks: minute.bars(model["key"], now, looks), right=False),
        Column("REQ/S", lambda model, _: rate(model["requests_per_second"])), Column("P99", lambda model, _: span(model["p99"])),
        Column("ROWS", lambda model, _: NONE if model["rows_per_run"] is None else f"{model['rows_per_run']:.1f}"),
        Column("MEM", lambda model, _: memory_of(model)),
    )


def _row(line: str, word: str, looks: Looks, *, selected: bool) -> str:
    text = looks.cut(f"{looks.symbol('cursor') if selected else ' '} {line}", looks.width)
    return looks.paint(text, "selected" if selected else word)


def title(state: Mapping[str, Any], looks: Looks) -> str:
    daemon = state["daemon"]
    memory = daemon["memory"]
    parts = [
        f"wakeful {daemon['version']}", f"up {show_seconds(daemon['up_seconds'])}", f"{rate(daemon['requests_per_second'])} req/s",
        f"p99 {span(daemon['p99'])}", f"memory {bar(memory['used'], memory['budget'], looks)} {of_budget(memory['used'], memory['budget'])}",
    ]
    return "  ".join(parts)


def bar(used: float, budget: float, looks: Looks) -> str:
    """Of BAR columns, in steps of an eighth where symbols are to be had."""
    eighths = round(8 * BAR * min(max(used / budget if budget else 0.0, 0.0), 1.0))
    full, rest = divmod(eighths, 8)
    return (looks.symbol("full") * full + (looks.symbol("eighths")[rest] if rest else "")).ljust(BAR, " " if looks.unicode else ".")


def _problem(state: Mapping[str, Any]) -> str:
    problems = state["daemon"]["problems"]
    if not problems:
        return ""
    more = f" (and {counted(len(problems) - 1, 'other')})" if len(problems) > 1 else ""
    return f"problem: {printable(problems[0]['text'])}{more}"


def _prompt(screen: Screen, models: Sequence[Model], looks: Looks) -> str:
    if screen.pending is not None:
        return f"{screen.pending.verb} {printable(screen.pending.model)}? y or n"
    if screen.mode == "find":
        return f"find: {printable(screen.find)}_"
    states = ["FROZEN"] if screen.frozen else []
    states += [f"find {printable(screen.find)}: {counted(len(models), 'model')}"] if screen.find else []
    states += [f"by {screen.sort}"] if screen.sort != "name" else []
    return "  ".join([*states, f"{looks.symbol('arrows')} {KEYS}"])


def _filled(lines: list[str], foot: list[str], height: int) -> list[str]:
    room = max(height - len(foot), 0)
    return [*lines[:room], *[""] * (room - len(lines)), *foot][:height]
