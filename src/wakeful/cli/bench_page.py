"""What `wakeful bench` says of a run. Pure: from results to lines."""

from collections.abc import Iterator, Sequence

from wakeful.cli.bench_asserts import Bound
from wakeful.cli.figures import GAP, columns
from wakeful.cli.looks import Looks, printable
from wakeful.loadgen.calls import Call
from wakeful.loadgen.results import Results
from wakeful.loadgen.summary import BUSY, failures, histogram, percentiles
from wakeful.telemetry.units import show_seconds

LONGEST_BAR = 40
LATE = 0.25
"""A lag (99th percentile) of this share of the median latency is worth a word."""
MOST_FAILURES = 8
LONGEST_TEXT = 300
HEAD = ("requests/s", "rows/s", "p50", "p90", "p95", "p99", "max", "answered", "failed")


def page(results: Results, calls: Sequence[Call], title: str, looks: Looks) -> list[str]:
    lines = [looks.paint(printable(title), "head"), *_figures(results, calls)]
    if results.ok():
        lines += _histogram(results, looks)
    lines += [looks.paint(printable(line), "failed") for line in _failures(results, looks)]
    lines += [line if line.startswith("generator") else looks.paint(line, "warn") for line in remarks(results)]
    return lines


def asserts(kept: Sequence[tuple[Bound, float]], looks: Looks) -> list[str]:
    """A line for each bound and what came of it."""
    return [looks.paint(bound.told(value), "" if bound.holds(value) else "failed") for bound, value in kept]


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> list[str]:
    """Columns to the right, but for those in `left`."""
    right = set(range(len(rows[0]))) - set(left)
    return [GAP.join(row).rstrip() for row in columns(rows, right)]


def _figures(results: Results, calls: Sequence[Call]) -> list[str]:
    labels = list(dict.fromkeys(call.label for call in calls))
    if len(labels) == 1:
        return table([HEAD, _row(results, calls)])
    rows = [[printable(label), *_row(results.of(calls, label), calls)] for label in labels]
    return table([["model", *HEAD], *rows, ["all", *_row(results, calls)]], left=[0])


def _row(results: Results, calls: Sequence[Call]) -> list[str]:
    ok = results.ok()
    times = [show_seconds(value) if ok else "-" for value in percentiles(results).values()]
    return [number(results.throughput()), number(results.rows_per_second(calls)), *times, f"{ok:,}", f"{len(results) - ok:,}"]


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _histogram(results: Results, looks: Looks) -> list[str]:
    bins = histogram(results.latencies())
    most = max(one.answers for one in bins)
    rows = [[f"< {show_seconds(one.below)}", stroke(one.answers / most, looks), f"{one.answers:,}"] for one in bins]
    return table([["latency", "", "answers"], *rows], left=[1])


def stroke(share: float, looks: Looks) -> str:
    """A bar of up to 40 characters; something is to be seen of every share over 0."""
    eighths = round(share * LONGEST_BAR * 8)
    if share > 0:
        eighths = max(eighths, 1 if looks.unicode else 8)
    return (looks.symbol("full") * (eighths // 8) + looks.symbol("eighths")[eighths % 8]).rstrip()


def _failures(results: Results, looks: Looks) -> Iterator[str]:
    times = "×" if looks.unicode else "x"
    found = failures(results)
    for one in found[:MOST_FAILURES]:
        why = f"HTTP {one.status}" if one.status else "no answer"
        yield f"{one.calls:,} {times} {why}" + (f", first: {one.text[:LONGEST_TEXT]}" if one.text else "")
    if len(found) > MOST_FAILURES:
        yield f"and {len(found) - MOST_FAILURES} other statuses"


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
