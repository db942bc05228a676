"""Looking for the rate that a server keeps up with: what a step of a sweep has shown, and which rate comes next. Pure.

Rates are doubled until one is not kept up, then the middle between the best that was and the worst that was not is tried, until the two are close. A
rate that was just missed is tried again: machines have other things to do now and then.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wakeful.loadgen.calls import Call
from wakeful.loadgen.results import Results
from wakeful.loadgen.summary import BUSY, Bin, Facts, facts, histogram

KEPT = 0.95
"""A rate is kept up while this share of what is due is answered meanwhile,"""
FEW = 2.0
"""give or take so many calls: of slow models few are due in a step,"""
MOST_FAILED = 0.01
"""no more than this share fails,"""
GROWING = 2.0
"""and the median of the last window is at most so many times that of the first one,"""
GRACE = 0.005
"""plus so many seconds."""
CLOSE = 1.1
"""The search ends when the worst rate is no more than so many times the best."""
LOWEST = 1 / 64
"""Of the first rate: below, a server keeps up with nothing."""
CLEARLY = 0.8
"""A step that answers less than this share of what is due has missed its rate beyond doubt."""
MOST_STEPS = 30
LEAST_CALLS, LONGEST = 10, 30.0
"""A step of a low rate takes longer, so that so many calls are due in it, but no longer than so many seconds."""
WINDOWS = 3
STEADY = 0.1
"""Windows that differ from their mean by no more than this are stable, and a warm-up is over when two agree so far."""
ROUND = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)
IDLE = 0.25
"""The first rate takes about this share of the time of a server that answers one call after the other."""


class Window(NamedTuple):
    """A part of a step."""

    answered: float
    """2xx answers that came in it, to one that was due."""
    p50: float
    """Seconds, of the calls that were due in it; nan without answers."""


class Own(NamedTuple):
    """What the daemon says of a step itself, where it is a Wakeful."""

    rows: float | None
    """Of a run, on average."""
    queue: float | None
    """Seconds that a request waited for its run, on average."""
    run: float | None
    """Seconds of a run, on average."""
    memory: int
    """Bytes at its end."""


class Step(NamedTuple):
    """A rate that was tried."""

    rate: float
    """Calls a second that were to be made; `due` is how many chance made of it."""
    due: float
    facts: Facts
    """`done`: answers that came while calls were due, a second."""
    windows: tuple[Window, ...]
    bins: tuple[Bin, ...]
    """Of all latencies."""
    busy: float
    """Share of a core that the generator used."""
    interrupted: bool = False
    own: Own | None = None

    @property
    def kept(self) -> bool:
        """Did the server keep up?"""
        seconds = self.facts.calls / self.due if self.due else 1.0
        enough = self.due * KEPT - FEW / seconds
        if self.interrupted or not self.facts.done or self.facts.done < enough or self.failed > MOST_FAILED:
            return False
        first, last = self.windows[0].p50, self.windows[-1].p50
        return not last > GROWING * first + GRACE

    @property
    def failed(self) -> float:
        """Share of the calls that got no 2xx answer."""
        return self.facts.failed / max(self.facts.calls, 1)

    @property
    def spread(self) -> float:
        """How far a window is from the mean of all, at most, as a share: in its median or in what was answered. nan where one has no answer."""
        return max(_spread([one.p50 for one in self.windows]), _spread([one.answered for one in self.windows]))


def measured(results: Results, calls: Sequence[Call], rate: float, begin: float, seconds: float) -> Step:
    """A step of `seconds` that began at `begin`; what came before was to fill the server's queues."""
    start, took, status = np.array(results.start), np.array(results.seconds), np.array(results.status)
    good = (status >= 200) & (status < 300)
    ends = (start + took)[good]
    part = results.warmed(begin)
    found = facts(part, calls)
    done = _count(ends, begin, begin + seconds) / seconds
    edges = np.linspace(begin, begin + seconds, WINDOWS + 1).tolist()
    windows = []
    for low, high in pairwise(edges):
        here = (start >= low) & (start < high)
        times = took[here & good]
        p50 = float(np.percentile(times, 50, method="inverted_cdf")) if len(times) else math.nan
        windows.append(Window(_count(ends, low, high) / max(int(here.sum()), 1), p50))
    rows = found.rows / found.done * done if found.done else 0.0
    bins = tuple(histogram(part.latencies()))
    return Step(rate, found.calls / seconds, found._replace(done=done, rows=rows), tuple(windows), bins, results.busy(), results.interrupted)


def _count(ends: "npt.NDArray[np.float64]", low: float, high: float) -> int:
    return int(((ends >= low) & (ends < high)).sum())


def _spread(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return max(abs(value - mean) for value in values) / mean if mean > 0 else math.nan


def long_enough(seconds: float, rate: float) -> float:
    """Of a step, so that some calls are due in it."""
    return max(seconds, min(LEAST_CALLS / rate, LONGEST))


def agree(earlier: float, later: float) -> bool:
    """Two medians of a warm-up."""
    return abs(earlier - later) <= STEADY * max(earlier, later)


def first_rate(seconds: float) -> float:
    """A round one at which a server that takes so long for a call mostly waits."""
    return rounded(IDLE / max(seconds, 1e-6))


def rounded(rate: float) -> float:
    """The nearest of 1, 1.5, 2, 3, 5 and 7 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rate))
    return power * min(ROUND, key=lambda one: abs(math.log(one * power / rate)))


def next_rate(steps: Sequence[Step], first: float) -> float | None:
    """None: the search is over."""
    if not steps:
        return first
    if len(steps) >= MOST_STEPS or steps[-1].interrupted:
        return None
    if _doubtful(steps):
        return steps[-1].rate
    best, worst = knee(steps), lowest_missed(steps)
    if worst is None:
        return None if steps[-1].busy > BUSY else 2 * max(step.rate for step in steps)
    if best is None:
        return worst.rate / 2 if worst.facts.done and worst.rate / 2 >= first * LOWEST else None
    return None if worst.rate <= CLOSE * best.rate else _middle(best.rate, worst.rate)


def _middle(low: float, high: float) -> float:
    middle = math.sqrt(low * high)
    return float(f"{middle:.2g}") if low < float(f"{middle:.2g}") < high else middle


def _doubtful(steps: Sequence[Step]) -> bool:
    """Has the last one just missed its rate, and for the first time?"""
    last = steps[-1]
    narrow = not last.kept and last.facts.done >= CLEARLY * last.due and last.failed <= MOST_FAILED
    return narrow and sum(step.rate == last.rate for step in steps) == 1


def _judged(steps: Sequence[Step]) -> list[Step]:
    """Of each rate the latest."""
    return list({step.rate: step for step in steps}.values())


def lowest_missed(steps: Sequence[Step]) -> Step | None:
    return min((step for step in _judged(steps) if not step.kept and not step.interrupted), key=lambda step: step.rate, default=None)


def knee(steps: Sequence[Step]) -> Step | None:
    """The highest rate that was kept up, below all that were not."""
    missed = lowest_missed(steps)
    most = math.inf if missed is None else missed.rate
    return max((step for step in _judged(steps) if step.kept and step.rate < most), key=lambda step: step.rate, default=None)
