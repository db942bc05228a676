"""Latency against throughput, drawn with characters. Pure: the same steps are always the same lines."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from wakeful.cli.looks import Looks
from wakeful.loadgen.sweep import Step, knee
from wakeful.telemetry.units import show_seconds

HEIGHT = 8
WIDTH = 72
"""Of it all, or the terminal's if that has fewer."""
TITLE = "p99 "


class Point(NamedTuple):
    x: float
    """Answers a second."""
    y: float
    """Seconds."""
    kept: bool
    knee: bool


class Axis(NamedTuple):
    """A logarithmic scale of `cells` places."""

    low: float
    high: float
    cells: int

    def place(self, value: float) -> int:
        if self.high <= self.low:
            return 0
        return round((self.cells - 1) * math.log(value / self.low) / math.log(self.high / self.low))


def points_of(steps: Sequence[Step]) -> list[Point]:
    """Those with answers, by throughput."""
    best = knee(steps)
    found = [Point(step.facts.done, step.facts.percentile(99), step.kept, step is best) for step in steps]
    return sorted(point for point in found if point.x > 0 and point.y > 0)


def chart(steps: Sequence[Step], looks: Looks) -> list[str]:
    """Nothing where there are not two points to compare."""
    points = points_of(steps)
    if len(points) < 2:
        return []
    labels = {point: show_seconds(point.y) for point in points}
    left = len(TITLE) + max(map(len, labels.values()))
    xs = Axis(points[0].x, points[-1].x, max(min(WIDTH, looks.width or WIDTH) - left - 3, 10))
    ys = Axis(min(point.y for point in points), max(point.y for point in points), HEIGHT)
    cells = [[" "] * xs.cells for _ in range(HEIGHT)]
    names = [""] * HEIGHT
    for point in sorted(points, key=lambda point: (point.knee, point.kept)):
        row = HEIGHT - 1 - ys.place(point.y)
        cells[row][xs.place(point.x)] = looks.symbol("ready" if point.kept else "asleep")
        names[row] = labels[point]
    bar, corner, tick, rule = "┤└┬─" if looks.unicode else "|+++"
    rule = rule if looks.unicode else "-"
    body = [f"{TITLE if not place else '':<{len(TITLE)}}{name:>{left - len(TITLE)}} {bar}{''.join(row)}".rstrip()
            for place, (name, row) in enumerate(zip(names, cells, strict=True))]
    shown = _ticks(points, xs)
    scale = "".join(tick if place in shown else rule for place in range(xs.cells))
    indent = " " * (left + 1)
    legend = f"{looks.symbol('ready')} kept up  {looks.symbol('asleep')} not"
    return ["", *body, f"{indent}{corner}{scale} done/s", f"{indent} {_under(shown)}", f"{indent} {legend}", ""]


def _ticks(points: Sequence[Point], xs: Axis) -> dict[int, str]:
    """What stands below the axis, by place: the knee, the ends, and others where there is room."""
    shown: dict[int, str] = {}
    for point in sorted(points, key=lambda point: (not point.knee, point not in (points[0], points[-1]), point.x)):
        place, text = xs.place(point.x), f"{point.x:.0f}" if point.x >= 10 else f"{point.x:.1f}"
        if all(place + len(text) < other or other + len(label) < place for other, label in shown.items()):
            shown[place] = text
    return shown


def _under(shown: dict[int, str]) -> str:
    text = ""
    for place, label in sorted(shown.items()):
        text = f"{text:<{place}}{label}"
    return text
