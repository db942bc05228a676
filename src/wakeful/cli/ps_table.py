"""The table of models that `ps` and `top` show. Pure: from the answer of /wakeful/v1/state to lines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from wakeful.cli.figures import (
    GAP,
    NONE,
    columns,
    dots,
    latest_line,
    memory_of,
    of_budget,
    rate,
    sleeps,
    span,
    word_of,
)
from wakeful.cli.looks import Looks, printable

Model = Mapping[str, Any]
NARROWEST_NAME = 12
_STATES = ("busy", "ready", "waking", "draining", "failed", "asleep")


class Column(NamedTuple):
    title: str
    cell: Callable[[Model, Looks], str]
    right: bool = True


USUAL = (
    Column("MODEL", lambda model, _: printable(model["key"]), right=False),
    Column("STATE", lambda model, _: word_of(model), right=False),
    Column("REPLICAS", dots, right=False),
    Column("QUEUE", lambda model, _: str(model["queue"])),
    Column("REQ/S", lambda model, _: rate(model["requests_per_second"])),
    Column("P50", lambda model, _: span(model["p50"])),
    Column("P99", lambda model, _: span(model["p99"])),
    Column("MEMORY", lambda model, _: memory_of(model)),
    Column("SLEEPS", lambda model, _: sleeps(model), right=False),
)
MORE = (
    Column("RUNNING", lambda model, _: str(model["running"])),
    Column("ROWS", lambda model, _: NONE if model["rows_per_run"] is None else f"{model['rows_per_run']:.1f}"),
    Column("DONE", lambda model, _: str(model["done"])),
    Column("FAILED", lambda model, _: str(model["failed"])),
    Column("USED", lambda model, _: NONE if model["last_used"] is None else f"{span(model['last_used'])} ago"),
    Column("BACKEND", lambda model, _: printable(model["backend"]), right=False),
    Column("WHY", lambda model, _: printable(model["reason"] or ""), right=False),
)
ORDERS: Mapping[str, Callable[[Model], Any]] = {
    "name": lambda _: (),
    "state": lambda model: _STATES.index(model["state"]),
    "queue": lambda model: -model["queue"],
    "rate": lambda model: -model["requests_per_second"],
    "p99": lambda model: -(model["p99"] or 0),
    "memory": lambda model: -model["resident_bytes"],
    "used": lambda model: float("inf") if model["last_used"] is None else model["last_used"],
}
"""Keys by which to sort, largest first; ties by name."""


def chosen(state: Mapping[str, Any], *, everything: bool, order: str = "name", find: str = "") -> list[Model]:
    """Those to show; without `everything`, neither models that have never been awake nor those that only help others."""
    found = [model for model in state["models"] if find.lower() in model["key"].lower()]
    if not everything:
        found = [model for model in found if not (model["helps"] or never_woken(model))]
    return sorted(found, key=lambda model: (ORDERS[order](model), model["key"]))


def never_woken(model: Model) -> bool:
    return model["state"] == "asleep" and model["last_used"] is None and model["wakes_in"] is None and not model["runs"]


def page(state: Mapping[str, Any], looks: Looks, *, everything: bool = False, wide: bool = False, order: str = "name") -> list[str]:
    """What `ps` prints."""
    models = chosen(state, everything=everything, order=order)
    lines = table(models, looks, (*USUAL, *MORE) if wide else USUAL)
    lines += [f"  {printable(model['key'])}: {trouble(model)}" for model in models if model["state"] == "failed"]
    lines.append(summary(state, models))
    if state["last"] is not None:
        lines.append(f"last: {latest_line(state['last'])}")
    return lines


def table(models: Sequence[Model], looks: Looks, shown: Sequence[Column]) -> list[str]:
    """With a header. On a terminal that is too narrow, names are cut."""
    rows = [[column.title for column in shown], *([column.cell(model, looks) for column in shown] for model in models)]
    rows = _fitted(rows, looks)
    aligned = columns(rows, (place for place, column in enumerate(shown) if column.right))
    head, *body = aligned
    return [looks.paint(GAP.join(head).rstrip(), "head"), *(GAP.join([row[0], _painted(row[1], looks), *row[2:]]).rstrip() for row in body)]


def _painted(cell: str, looks: Looks) -> str:
    """The state's word in its colour, and what fills the column without."""
    word = cell.rstrip()
    return looks.paint(word, word) + cell[len(word):]


def _fitted(rows: list[list[str]], looks: Looks) -> list[list[str]]:
    if looks.width is None:
        return rows
    others = sum(max(len(row[place]) for row in rows) for place in range(1, len(rows[0]))) + len(GAP) * (len(rows[0]) - 1)
    room = max(looks.width - others, NARROWEST_NAME)
    return [[looks.cut(row[0], room), *row[1:]] for row in rows]


def trouble(model: Model) -> str:
    """Why it failed, and when it is tried again."""
    text = printable(model["error"] or model["reason"] or "its load failed")
    if model["retry_in"] is None:
        return text
    return f"{text}; next try " + (f"in {span(model['retry_in'])}" if model["retry_in"] else "when it is asked for")


def summary(state: Mapping[str, Any], models: Sequence[Model]) -> str:
    daemon = state["daemon"]
    counts = daemon["models"]
    words = [f"{counts[name]} {name}" for name in ("awake", "asleep", "failed") if counts[name] or name != "failed"]
    hidden = len(state["models"]) - len(models)
    if hidden:
        words.append(f"{hidden} more with -a")
    return GAP.join([f"memory {memory_text(state)} ", f"{', '.join(words)} ", f"{rate(daemon['requests_per_second'])} req/s"])


def memory_text(state: Mapping[str, Any]) -> str:
    memory = state["daemon"]["memory"]
    awake = [model for model in state["models"] if model["resident_bytes"]]
    how = "measured" if all(model["measured"] for model in awake) else "partly estimated"
    return f"{of_budget(memory['used'], memory['budget'])} ({how})"


def lines_of(state: Mapping[str, Any]) -> Iterator[str]:
    """Every problem of the daemon, for -v."""
    for problem in state["daemon"]["problems"]:
        yield f"problem: {printable(problem['text'])}"
        if problem["hint"]:
            yield f"  hint: {printable(problem['hint'])}"
