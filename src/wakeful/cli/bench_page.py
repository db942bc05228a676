"""What `wakeful bench` shows: a bar while it runs, then the figures, on a terminal or in a file."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from wakeful.clock import monotonic
from wakeful.loadgen.calls import Call
from wakeful.loadgen.driver import Progress as Report
from wakeful.loadgen.results import Results
from wakeful.loadgen.summary import BUSY, failures, histogram, percentiles
from wakeful.telemetry.units import show_seconds

REDRAW = 0.25
"""Seconds between two states of the bar: drawing one takes a millisecond, in which nothing is sent."""
WIDTH = 140
LONGEST_BAR = 40
EIGHTHS = " ▏▎▍▌▋▊▉"
LATE = 0.25
"""A lag (99th percentile) of this share of the median latency is worth a word."""
MOST_FAILURES = 8
LONGEST_TEXT = 300


@contextmanager
def bar(text: str) -> Iterator[Report | None]:
    """A progress bar on stderr; None where that is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"{text} ...", file=sys.stderr, flush=True)
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task(text, total=1.0)
        drawn = 0.0

        def report(share: float) -> None:
            nonlocal drawn
            if (now := monotonic()) - drawn >= REDRAW:
                drawn = now
                progress.update(task, completed=share, refresh=True)

        yield report


def show(results: Results, calls: Sequence[Call], title: str) -> None:
    """The page, on stdout."""
    console = Console(highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = WIDTH  # nothing is cut off in a file
    console.print(title, style="bold", soft_wrap=True)
    console.print(_figures(results, calls))
    if results.ok():
        console.print(_histogram(results))
    for line in _failures(results):
        console.print(line, style="red", soft_wrap=True)
    for line in remarks(results):
        console.print(line, style="dim" if line.startswith("generator") else "yellow", soft_wrap=True)


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


def _figures(results: Results, calls: Sequence[Call]) -> Table:
    table = _table()
    labels = list(dict.fromkeys(call.label for call in calls))
    several = len(labels) > 1
    if several:
        table.add_column("model", overflow="fold")
    for name in ("requests/s", "rows/s", "p50", "p90", "p95", "p99", "max", "answered", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    for label in labels if several else []:
        table.add_row(label, *_row(results.of(calls, label), calls))
    table.add_row(*(["all"] if several else []), *_row(results, calls), style="bold")
    return table


def _row(results: Results, calls: Sequence[Call]) -> list[str]:
    ok = results.ok()
    times = [show_seconds(value) if ok else "-" for value in percentiles(results).values()]
    return [_number(results.throughput()), _number(results.rows_per_second(calls)), *times, f"{ok:,}", f"{len(results) - ok:,}"]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _histogram(results: Results) -> Table:
    table = _table()
    table.add_column("latency", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("answers", justify="right", no_wrap=True)
    bins = histogram(results.latencies())
    most = max(one.answers for one in bins)
    for one in bins:
        table.add_row(f"< {show_seconds(one.below)}", stroke(one.answers / most), f"{one.answers:,}")
    return table


def stroke(share: float) -> str:
    """A bar of up to 40 characters; something is to be seen of every share over 0."""
    eighths = round(share * LONGEST_BAR * 8)
    if share > 0:
        eighths = max(eighths, 1)
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()


def _failures(results: Results) -> list[str]:
    found = failures(results)
    lines = [
        f"{one.calls:,} × {f'HTTP {one.status}' if one.status else 'no answer'}{f', first: {one.text[:LONGEST_TEXT]}' if one.text else ''}"
        for one in found[:MOST_FAILURES]
    ]
    return lines + ([f"and {len(found) - MOST_FAILURES} other statuses"] if len(found) > MOST_FAILURES else [])


def remarks(results: Results) -> list[str]:
    """What a reader should know before believing the figures."""
    lines: list[str] = []
    if results.interrupted:
        under_way = f"; {results.under_way} calls were under way, the oldest for {show_seconds(results.oldest)}" if results.under_way else ""
        lines.append(f"note: interrupted after {show_seconds(results.wall)}{under_way}")
    busy, lag = results.busy(), results.lag
    if busy > BUSY:
        lines.append(f"warning: the generator was the limit: it used {busy:.0%} of a core. The server may be faster than this shows.")
    elif len(results):
        lines.append(f"generator: {busy:.0%} of a core" + (f", {show_seconds(lag)} late (p99)" if lag else ""))
    if results.ok() and lag > LATE * results.percentile(50) and busy <= BUSY:
        lines.append("note: part of the latency is the generator's own lateness: it had to wait for a core of this machine")
    return lines
