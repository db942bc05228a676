"""How figures of the data door are written in tables and lines. Pure: the same figures are always the same text."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wakeful.cli.looks import Looks, printable
from wakeful.telemetry.units import show_bytes, show_seconds

NONE = "-"
MOST_DOTS = 8
GAP = "  "


def word_of(model: Mapping[str, Any]) -> str:
    """The state in one word: of a model that is awake without work, whether it is kept so."""
    return "pinned" if model["state"] == "ready" and model["pinned"] else str(model["state"])


def dots(model: Mapping[str, Any], looks: Looks) -> str:
    """A symbol a replica, in the order of their numbers, then "alive/most"."""
    replicas = model["replicas"]
    if not replicas:
        return NONE if model["pipeline"] else looks.symbol("failed" if model["state"] == "failed" else "asleep")
    symbols = "".join(looks.symbol(replica["state"]) for replica in replicas[:MOST_DOTS])
    more = "+" if len(replicas) > MOST_DOTS else ""
    most = f"/{model['max_replicas']}" if model["max_replicas"] else ""
    return f"{symbols}{more} {len(replicas)}{most}"


def rate(value: float | None) -> str:
    if value is None:
        return NONE
    if value < 0.05:
        return "0"
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def span(seconds: float | None) -> str:
    return NONE if seconds is None else show_seconds(seconds)


def size(count: float | None) -> str:
    return NONE if count is None else "0" if not count else show_bytes(count)


def memory_of(model: Mapping[str, Any]) -> str:
    if model["pipeline"]:
        return NONE
    text = size(model["resident_bytes"])
    return text if model["measured"] or not model["resident_bytes"] else f"~{text}"


def sleeps(model: Mapping[str, Any]) -> str:
    """When it falls asleep, or in brackets how long a wake takes; of one that failed, when it is tried again at the earliest."""
    state = model["state"]
    if model["pipeline"]:
        return NONE
    if model["pinned"] and state != "failed":
        return "never"
    if state == "failed":
        return span(model["retry_in"] or None)
    if state == "asleep":
        wakes = model["wakes_in"]
        return NONE if wakes is None else f"({show_seconds(wakes).replace(' ', '')})"
    if model["sleeps_in"] is not None:
        return show_seconds(model["sleeps_in"])
    return "never" if state == "ready" else NONE


def of_budget(used: float, budget: float) -> str:
    """ "490 of 512 MiB": one unit where both have the same."""
    first, second = show_bytes(used), show_bytes(budget)
    number, _, unit = first.partition(" ")
    return f"{number} of {second}" if second.endswith(f" {unit}") else f"{first} of {second}"


def clock(moment: float, *, fine: bool = False) -> str:
    """A time of day here, of seconds since 1970."""
    text = time.strftime("%H:%M:%S", time.localtime(moment))
    return f"{text}.{int(moment * 1000) % 1000:03}" if fine else text


def columns(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[list[str]]:
    """All cells of a column as wide as the widest one, numbers (columns in `right`) to the right. The last column has no blanks behind it."""
    right = set(right)
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        [cell.rjust(width) if place in right else cell.ljust(width) if place < len(row) - 1 else cell
         for place, (cell, width) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]


def event_line(event: Mapping[str, Any], *, width: int = 0) -> str:
    """ "14:02:11.204 4810 scale  search-embedder  text": `width` of the models' names."""
    model = printable(event["model"] or NONE)
    return f"{clock(event['time'], fine=True)} {event['seq']:>5} {event['kind']:<7} {model:<{width}}{GAP}{printable(event['text'])}"


def latest_line(event: Mapping[str, Any]) -> str:
    model = f" {printable(event['model'])}" if event["model"] else ""
    return f"{clock(event['time'])} {event['kind']}{model}  {printable(event['text'])}"
