"""`wakeful bench --sweep`: rates one after the other, and the page that says where the knee is."""

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wakeful.cli.bench_calls import Mix
from wakeful.cli.bench_chart import chart
from wakeful.cli.bench_options import MOST_CALLS, Sweep
from wakeful.cli.bench_own import Counted, between
from wakeful.cli.bench_page import number, table
from wakeful.cli.bench_progress import Progress
from wakeful.cli.figures import NONE, size, span
from wakeful.cli.looks import Looks, printable
from wakeful.cli.output import Output
from wakeful.loadgen import arrivals, sweep
from wakeful.loadgen.driver import closed, open_loop
from wakeful.loadgen.summary import BUSY
from wakeful.loadgen.sweep import Step
from wakeful.loadgen.target import Target
from wakeful.telemetry.units import counted, show_seconds

WARMUP_WINDOW = 0.3
"""Seconds."""
MOST_WINDOWS = 10
LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEAD = ("rate/s", "done/s", "p50", "p99", "p99.9")
OWN_HEAD = ("rows", "queue", "run", "memory")


class Driver:
    """Carries out what `loadgen.sweep` decides."""

    def __init__(self, target: Target, mix: Mix, plan: Sweep, seed: int, timeout: float) -> None:
        self._target, self._mix, self._plan, self._seed, self._timeout = target, mix, plan, seed, timeout
        self._order = mix.order(seed)

    def run(self, output: Output, ask: Callable[[], Counted | None]) -> list[Step]:
        """Raises OSError."""
        progress = Progress(f"{self._plan.text}: warming up", sys.stderr, output.asides, quiet=output.quiet)
        steps: list[Step] = []
        try:
            typical = self._warm(progress)
            first = self._plan.first or sweep.first_rate(typical)
            while (rate := sweep.next_rate(steps, first)) is not None and rate * (self._plan.settling + self._plan.seconds) <= MOST_CALLS:
                progress.step(line(steps[-1]) if steps else f"warm, beginning with {number(first)}/s", f"{number(rate)}/s")
                before = ask()
                steps.append(self._step(rate, len(steps), progress))
                steps[-1] = steps[-1]._replace(own=between(before, ask()))
            if steps:
                progress.step(line(steps[-1]), "")
        finally:
            progress.done()
        return steps

    def _warm(self, progress: Progress) -> float:
        """One call after the other until two windows agree. Seconds of a call."""
        last = 0.0
        for window in range(MOST_WINDOWS):
            results = closed(
                self._target.address, self._mix.calls, connections=1, seconds=WARMUP_WINDOW, order=self._order, timeout=self._timeout,
            )
            if results.interrupted:
                raise KeyboardInterrupt
            progress.report((window + 1) / MOST_WINDOWS)
            median = results.percentile(50) if results.ok() else self._timeout
            if sweep.agree(last, median):
                return median
            last = median
        return last

    def _step(self, rate: float, index: int, progress: Progress) -> Step:
        plan, seconds = self._plan, sweep.long_enough(self._plan.seconds, rate)
        due = arrivals.poisson(rate, plan.settling + seconds, self._seed + index)
        results = open_loop(
            self._target.address, self._mix.calls, due, connections=plan.connections, order=self._order, timeout=self._timeout,
            progress=progress.seen,
        )
        return sweep.measured(results, self._mix.calls, rate, plan.settling, seconds)


# ── in words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def about(target: Target, mix: Mix) -> str:
    """How it is measured."""
    cores = len(os.sched_getaffinity(0))
    shared = f"; {counted(cores, 'core')}, client included" if target.host in LOOPBACK else ""
    return f"open loop, Poisson; {'; '.join(mix.inputs)}{shared}"


def line(step: Step) -> str:
    return f"{number(step.rate)}/s: {number(step.facts.done)} done/s, p99 {span_of(step, 99)}{'' if step.kept else ', not kept up'}"


def page(steps: Sequence[Step], title: str, about: str, looks: Looks) -> list[str]:
    shown = sorted(steps, key=lambda step: step.rate)
    return [looks.paint(printable(title), "head"), printable(about), *rows(shown), *chart(shown, looks), *conclusion(steps)]


def rows(steps: Sequence[Step]) -> list[str]:
    """The table. Without the columns of the daemon's own figures where there are none."""
    own = any(step.own is not None for step in steps)
    head = [*HEAD, *(OWN_HEAD if own else ()), "refused"]
    return table([head, *([*_figures(step), *(_own(step) if own else ()), _share(step.failed)] for step in steps)])


def _figures(step: Step) -> list[str]:
    return [number(step.rate), number(step.facts.done), *(span_of(step, percent) for percent in (50, 99, 99.9))]


def span_of(step: Step, percent: float) -> str:
    return show_seconds(step.facts.percentile(percent)) if step.facts.calls > step.facts.failed else NONE


def _own(step: Step) -> list[str]:
    own = step.own
    if own is None:
        return [NONE] * len(OWN_HEAD)
    return [NONE if own.rows is None else f"{own.rows:.1f}", span(own.queue), span(own.run), size(own.memory)]


def _share(share: float) -> str:
    return "0" if not share else f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def conclusion(steps: Sequence[Step]) -> Iterator[str]:
    """Where the knee is, and whether it can be believed."""
    best, worst = sweep.knee(steps), sweep.lowest_missed(steps)
    if best is None:
        yield "no knee: nothing was measured to its end" if worst is None else f"no knee: not even {number(worst.rate)}/s was kept up"
    else:
        near = "knee near" if worst is not None else "no knee up to"
        yield f"{near} {number(best.rate)}/s (p99 {span_of(best, 99)}); {stability(best)}"
    if any(step.interrupted for step in steps):
        yield "note: interrupted"
    limit = next((step for step in sorted(steps, key=lambda step: step.rate) if step.busy > BUSY), None)
    if limit is not None:
        yield f"warning: from {number(limit.rate)}/s on, the generator was the limit: it used {limit.busy:.0%} of a core. The server may be faster."


def stability(step: Step) -> str:
    """ "stable: last three windows within 4 %"."""
    spread = step.spread
    if not spread <= sweep.STEADY:
        how = f"the last three windows differ by up to {100 * spread:.0f} % from their mean" if not math.isnan(spread) else "a window has no answer"
        return f"not stable: {how}"
    return f"stable: last three windows within {max(100 * spread, 1):.0f} %"


# ── for programs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_dict(steps: Sequence[Step]) -> dict[str, Any]:
    best = sweep.knee(steps)
    return {
        "steps": [_step(step) for step in steps],
        "knee": None if best is None else best.rate,
        "stable": best is not None and best.spread <= sweep.STEADY,
        "conclusion": list(conclusion(steps)),
    }


def _step(step: Step) -> dict[str, Any]:
    answered = step.facts.calls > step.facts.failed
    return {
        "rate": step.rate, "due_per_second": step.due, "done_per_second": step.facts.done, "rows_per_second": step.facts.rows,
        "requests": step.facts.calls, "failed": step.facts.failed, "kept": step.kept, "generator_busy": step.busy,
        "latency_ms": {f"p{percent:g}": 1000 * step.facts.percentile(percent) if answered else None for percent in (50, 90, 95, 99, 99.9)},
        "spread": None if math.isnan(step.spread) else step.spread,
        "own": None if step.own is None else step.own._asdict(),
        "histogram": [{"below_ms": 1000 * one.below, "count": one.answers} for one in step.bins],
    }
