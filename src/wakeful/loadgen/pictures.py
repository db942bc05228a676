"""Pictures of a run and of a sweep, as SVG or as a page of HTML around it, as the file's name ends. The same figures are the same file."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import numpy as np

from wakeful.loadgen.results import Results
from wakeful.loadgen.summary import over_time, percentiles
from wakeful.loadgen.svg import Frame, Point, decades, document, ticks, words
from wakeful.loadgen.sweep import Step, knee
from wakeful.telemetry.units import show_seconds

WIDTH, HEIGHT = 1000, 420
TICKS = (50.0, 90.0, 99.0, 99.9, 99.99)
MOST_POINTS = 400
PAGE_STYLE: Final = """\
:root{color-scheme:light dark}body{font:15px/1.5 sans-serif;max-width:62rem;margin:1rem auto;padding:0 1rem}svg{width:100%;height:auto}
table{border-collapse:collapse}th,td{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #8886}"""
Table = Sequence[Sequence[str]]


def run(results: Results, title: str, path: Path) -> None:
    """Latency by percentile, and throughput and latency over time. Raises OSError."""
    longest = [["max" if percent == 100 else f"p{percent}", _seconds(value)] for percent, value in percentiles(results).items()]
    figures = [["answers/s", f"{results.throughput():.1f}"], *longest]
    _write(path, title, [*_percentiles(results), *_time(results)], list(zip(*figures, strict=True)))


def sweep(steps: Sequence[Step], title: str, path: Path) -> None:
    """Latency against throughput. Raises OSError."""
    shown = sorted(steps, key=lambda step: step.rate)
    head = ["rate/s", "done/s", "p50", "p99", "p99.9", "kept up"]
    rows = [
        [f"{step.rate:.4g}", f"{step.facts.done:.4g}", *(_seconds(step.facts.percentile(percent)) for percent in (50, 99, 99.9)),
         "yes" if step.kept else "no"]
        for step in shown
    ]
    _write(path, title, list(_against(shown)), [head, *rows])


def _seconds(value: float) -> str:
    return "-" if math.isnan(value) else show_seconds(value)


def _write(path: Path, title: str, parts: Sequence[str], table: Table) -> None:
    title = "".join(char if char.isprintable() else " " for char in title)
    drawn = document(title, WIDTH, HEIGHT, parts)
    text = _page(title, drawn, table) if path.suffix == ".html" else f'<?xml version="1.0" encoding="UTF-8"?>\n{drawn}\n'
    path.write_text(text, encoding="utf-8")


def _page(title: str, drawn: str, table: Table) -> str:
    head, *rows = (f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in row)}</tr>" for tag, row in _tagged(table))
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(title)}</title>", f"<style>{PAGE_STYLE}</style></head><body>",
        drawn, "<table>", f"<thead>{head}</thead>", f"<tbody>{''.join(rows)}</tbody>", "</table></body></html>", "",
    ])


def _tagged(table: Table) -> Iterator[tuple[str, Sequence[str]]]:
    return zip(["th"] + ["td"] * (len(table) - 1), table, strict=True)


# ── a run ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _percentiles(results: Results) -> Iterator[str]:
    seconds = np.sort(results.latencies())
    yield words(270, 50, "latency by percentile")
    if not len(seconds):
        return
    shown = [tick for tick in TICKS if 100 / (100 - tick) <= len(seconds)] or [TICKS[0]]
    low, high = decades(float(seconds[0]), float(seconds[-1]))
    frame = Frame(70, 60, 470, 370, 1.0, max(float(len(seconds)), 2.0), low, high, log_x=True, log_y=True)
    yield from frame.grid([(100 / (100 - tick), f"{tick:g} %") for tick in shown], [(tick, show_seconds(tick)) for tick in ticks(low, high)])
    above = 1 - np.arange(len(seconds)) / len(seconds)  # share that took at least so long
    points = [(float(1 / share), float(value)) for share, value in zip(above, seconds, strict=True)]
    yield frame.line(_thinned(points, frame), "blue")


def _thinned(points: Sequence[Point], frame: Frame) -> list[Point]:
    """One for each step along the axis: a million answers need no million points."""
    step = (frame.right - frame.left) / MOST_POINTS
    kept: dict[int, Point] = {int(frame.x(x) / step): (x, y) for x, y in points}
    return [points[0], *kept.values()]


def _time(results: Results) -> Iterator[str]:
    slices = over_time(results)
    yield words(740, 50, "over time")
    if not slices:
        return
    end = slices[-1].begin + slices[-1].seconds
    most = max(max(one.answers, one.failures) / one.seconds for one in slices) or 1.0
    slowest = max((one.p99 for one in slices if not math.isnan(one.p99)), default=1.0) or 1.0
    rates = Frame(550, 60, 930, 370, 0.0, end, 0.0, 1.05 * most)
    times = rates._replace(high_y=1.05 * slowest)
    quarters = [part / 4 for part in range(5)]
    yield from rates.grid([(end * part, f"{end * part:.3g} s") for part in quarters], [(most * part, _short(most * part)) for part in quarters])
    yield from (words(936, times.y(slowest * part) + 4, show_seconds(slowest * part), "start", "red") for part in quarters)
    middles = [one.begin + one.seconds / 2 for one in slices]

    def drawn(frame: Frame, figure: Callable[[int], float], colour: str, *, dashed: bool = False) -> str:
        return frame.line([(middle, figure(place)) for place, middle in enumerate(middles)], colour, dashed=dashed)

    yield drawn(rates, lambda place: slices[place].answers / slices[place].seconds, "blue")
    if any(one.failures for one in slices):
        yield drawn(rates, lambda place: slices[place].failures / slices[place].seconds, "grey", dashed=True)
        yield words(740, 410, "failures/s (dashed)", colour="grey")
    yield drawn(times, lambda place: slices[place].p99, "red")
    yield words(550, 410, "answers/s", "start", "blue")
    yield words(930, 410, "p99", "end", "red")


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or not value else f"{value:.2g}"


# ── a sweep ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _against(steps: Sequence[Step]) -> Iterator[str]:
    """p50 and p99 by what was answered, in the order of the rates: where a server is past its knee, the lines turn back."""
    known = [step for step in steps if step.facts.done > 0 and step.facts.percentile(50) > 0]
    if not known:
        return
    done = [step.facts.done for step in known]
    low_x, high_x = decades(min(done), max(done))
    low_y, high_y = decades(min(step.facts.percentile(50) for step in known), max(step.facts.percentile(99) for step in known))
    frame = Frame(80, 50, 960, 360, low_x, high_x, low_y, high_y, log_x=True, log_y=True)
    yield from frame.grid([(tick, f"{tick:g}") for tick in ticks(low_x, high_x)], [(tick, show_seconds(tick)) for tick in ticks(low_y, high_y)])
    best = knee(steps)
    if best is not None:
        yield frame.line([(best.facts.done, low_y), (best.facts.done, high_y)], "grey", dashed=True)
        yield words(frame.x(best.facts.done), frame.top - 4, f"knee near {best.rate:.4g}/s", colour="grey")
    for percent, colour in ((50.0, "blue"), (99.0, "red")):
        points = [(step.facts.done, step.facts.percentile(percent)) for step in known]
        yield frame.line(points, colour)
        yield from (frame.mark(point, colour, hollow=not step.kept) for point, step in zip(points, known, strict=True))
    yield words(80, 404, "p50", "start", "blue")
    yield words(120, 404, "p99", "start", "red")
    yield words(170, 404, "hollow: not kept up", "start", "grey")
    yield words(960, 404, "answers/s", "end")
