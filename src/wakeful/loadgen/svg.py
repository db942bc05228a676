"""A picture of a run without any library: latency by percentile, and throughput and latency over time. The same run is the same file."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import numpy as np

from wakeful.loadgen.results import Results
from wakeful.loadgen.summary import over_time
from wakeful.telemetry.units import show_seconds

WIDTH, HEIGHT = 1000, 420
BLUE, RED, GREY, INK = "#2563a8", "#c0392b", "#888888", "#333333"
TICKS = (50.0, 90.0, 99.0, 99.9, 99.99)
MOST_POINTS = 400
Point = tuple[float, float]


class Frame(NamedTuple):
    """A rectangle of the page, and what its edges stand for."""

    left: float
    top: float
    right: float
    bottom: float
    low_x: float
    high_x: float
    low_y: float
    high_y: float
    log_x: bool = False
    log_y: bool = False

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * _share(value, self.low_x, self.high_x, log=self.log_x)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * _share(value, self.low_y, self.high_y, log=self.log_y)

    def line(self, points: Sequence[Point], colour: str, more: str = "") -> str:
        """Through all points that are there; a NaN leaves a hole."""
        path, pen = [], "M"
        for x, y in points:
            if math.isnan(y):
                pen = "M"
                continue
            path.append(f"{pen}{self.x(x):.1f},{self.y(y):.1f}")
            pen = "L"
        return f'<path d="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="1.5"{more}/>' if path else ""


def _share(value: float, low: float, high: float, *, log: bool) -> float:
    if log:
        value, low, high = math.log10(value), math.log10(low), math.log10(high)
    return (value - low) / (high - low) if high > low else 0.5


def plot(results: Results, title: str, path: Path) -> None:
    """Write an SVG. Raises OSError."""
    title = "".join(char if char.isprintable() else " " for char in title)
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>', _text(WIDTH / 2, 24, title, size=14),
        *_percentiles(results), *_time(results), "</svg>",
    ]
    path.write_text("\n".join(filter(None, parts)) + "\n", encoding="utf-8")


def _percentiles(results: Results) -> Iterator[str]:
    seconds = np.sort(results.latencies())
    yield _text(270, 50, "latency by percentile")
    if not len(seconds):
        return
    shown = [tick for tick in TICKS if 100 / (100 - tick) <= len(seconds)] or [TICKS[0]]
    low, high = _decades(float(seconds[0]), float(seconds[-1]))
    frame = Frame(70, 60, 470, 370, 1.0, max(float(len(seconds)), 2.0), low, high, log_x=True, log_y=True)
    yield from _grid(frame, [(100 / (100 - tick), f"{tick:g} %") for tick in shown], [(tick, show_seconds(tick)) for tick in _ticks(low, high)])
    above = 1 - np.arange(len(seconds)) / len(seconds)  # share that took at least so long
    points = [(float(1 / share), float(value)) for share, value in zip(above, seconds, strict=True)]
    yield frame.line(_thinned(points, frame), BLUE)


def _thinned(points: Sequence[Point], frame: Frame) -> list[Point]:
    """One for each step along the axis: a million answers need no million points."""
    step = (frame.right - frame.left) / MOST_POINTS
    kept: dict[int, Point] = {int(frame.x(x) / step): (x, y) for x, y in points}
    return [points[0], *kept.values()]


def _time(results: Results) -> Iterator[str]:
    slices = over_time(results)
    yield _text(740, 50, "over time")
    if not slices:
        return
    end = slices[-1].begin + slices[-1].seconds
    most = max(max(one.answers, one.failures) / one.seconds for one in slices) or 1.0
    slowest = max((one.p99 for one in slices if not math.isnan(one.p99)), default=1.0) or 1.0
    rates = Frame(550, 60, 930, 370, 0.0, end, 0.0, 1.05 * most)
    times = rates._replace(high_y=1.05 * slowest)
    quarters = [part / 4 for part in range(5)]
    yield from _grid(rates, [(end * part, f"{end * part:.3g} s") for part in quarters], [(most * part, _short(most * part)) for part in quarters])
    yield from (_text(936, times.y(slowest * part) + 4, show_seconds(slowest * part), "start", RED) for part in quarters)
    middles = [one.begin + one.seconds / 2 for one in slices]

    def drawn(frame: Frame, figure: Callable[[int], float], colour: str, more: str = "") -> str:
        return frame.line([(middle, figure(place)) for place, middle in enumerate(middles)], colour, more)

    yield drawn(rates, lambda place: slices[place].answers / slices[place].seconds, BLUE)
    if any(one.failures for one in slices):
        yield drawn(rates, lambda place: slices[place].failures / slices[place].seconds, GREY, ' stroke-dasharray="4 3"')
        yield _text(740, 410, "failures/s (dashed)", colour=GREY)
    yield drawn(times, lambda place: slices[place].p99, RED)
    yield _text(550, 410, "answers/s", "start", BLUE)
    yield _text(930, 410, "p99", "end", RED)


def _grid(frame: Frame, across: Sequence[tuple[float, str]], up: Sequence[tuple[float, str]]) -> Iterator[str]:
    lines = [f"M{frame.x(value):.1f},{frame.top}V{frame.bottom}" for value, _ in across]
    lines += [f"M{frame.left},{frame.y(value):.1f}H{frame.right}" for value, _ in up]
    yield f'<path d="{" ".join(lines)}" stroke="#dddddd" fill="none"/>'
    yield from (_text(frame.x(value), frame.bottom + 16, label) for value, label in across)
    yield from (_text(frame.left - 6, frame.y(value) + 4, label, "end") for value, label in up)


def _text(x: float, y: float, text: str, anchor: str = "middle", colour: str = INK, size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{escape(text)}</text>'


def _decades(low: float, high: float) -> tuple[float, float]:
    """Round bounds around two values, one of 1, 2 and 5 times a power of ten."""
    low, high = max(low, 1e-6), max(high, 1e-6)
    below = [tick for tick in _ticks(low / 10, low * 1.0000001) if tick <= low]
    above = [tick for tick in _ticks(high, high * 10) if tick > high]
    return below[-1], above[0]


def _ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for power in powers for step in (1, 2, 5) if low <= (tick := step * 10.0**power) <= high]


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or not value else f"{value:.2g}"
