"""When is a batch cut, and how large may it be: pure functions of (view, now, limits) and of what was learnt about the model (costs.py).

Both policies answer with the time at which the next batch of an idle replica is due. They are asked for nearly every arrival, so they allocate
nothing, and they count on being asked again whenever that may change the answer (an arrival, the end of a run, a request taken away).

While a replica runs, the next batch gathers for free; from how many rows on it is sealed nevertheless, into the second slot, is `ahead`.
How many rows a run may hold at most is `row_limit`; how many of those that wait it should hold is `cut`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from wakeful.batching.costs import CostModel

NOW = 0.0


@dataclass(slots=True)
class Limits:
    """What a batch may be. `max_rows` may be lower than configured: a fixed axis 0, or the size that was found safe for memory."""

    max_rows: int
    max_delay: float = 0.010
    target_p99: float | None = None
    policy: Literal["adaptive", "timer"] = "adaptive"


class View(NamedTuple):
    """An idle replica and its siblings at the moment of the question."""

    rows: int
    """Waiting rows of the group that is next."""
    oldest: float
    """Arrival of its oldest request."""
    siblings_busy: int = 0
    siblings_idle: int = 0
    behind: int = 0
    """Waiting rows of other groups: they gain nothing from this group's wait."""


Policy = Callable[[View, Limits, CostModel, float], float]
"""The last argument: rows that arrive in a second."""


def timer(view: View, limits: Limits, costs: CostModel, arriving: float) -> float:  # noqa: ARG001 - the shape of every policy
    """The two triggers: as many rows as a run may hold, or `max_delay` since the oldest arrived, whichever is first."""
    if view.rows + view.behind >= row_limit(limits, costs):
        return NOW
    return view.oldest + limits.max_delay


def adaptive(view: View, limits: Limits, costs: CostModel, arriving: float) -> float:
    """Never later than `timer`, and at once where waiting gains nothing.

    A model whose replicas are all idle runs at once: what arrives meanwhile gathers for free. An idle replica beside a busy one is the only one
    that waits, for up to t(rows) / replicas since the oldest arrival, so that the replicas' runs follow each other evenly instead of
    starting together with one row in the second. It stops waiting as soon as the rows are worth their run: their own part of its time
    is half as long as the fixed part, or there are twice as many as a steady stream would bring, which is the n where n = rate * t(n) / replicas.
    The end of a sibling's run ends the wait by itself, the policy being asked again with one busy sibling less.
    """
    rows, oldest, busy, idle, behind = view
    if not busy or rows + behind >= row_limit(limits, costs) or not costs.known:
        return NOW
    own = costs.per_row * rows
    if 2.0 * own >= costs.fixed:
        return NOW
    replicas = 1 + busy + idle
    # rows >= 2 n, with n = arriving * fixed / (replicas - arriving * per_row); no such n when overloaded
    if rows * (replicas - arriving * costs.per_row) >= 2.0 * arriving * costs.fixed:
        return NOW
    run = costs.fixed + own
    wait = min(run / replicas, limits.max_delay)
    if limits.target_p99 is not None:
        wait = min(wait, limits.target_p99 - run)
    return oldest + wait


POLICIES: dict[str, Policy] = {"adaptive": adaptive, "timer": timer}


ENOUGH = 100.0
"""Rows, times fixed / per_row, from which the fixed part is less than a hundredth of the run: larger runs save nothing."""
UNTRIED_ROWS = 16
"""Rows that a run may hold while nothing is known of the model, if the settings allow it. Where there is no fixed part, fewer would save nothing."""


def row_limit(limits: Limits, costs: CostModel) -> int:
    """Rows that a run may hold. What the settings allow; less where more saves nothing; with a target, as many (at least 1) as keep waiting for
    one full run and then running, 2 t(n), under it."""
    most = limits.max_rows
    if limits.policy == "adaptive":
        most = min(most, costs.worthwhile)
        if most > UNTRIED_ROWS:
            if not costs.known:
                most = UNTRIED_ROWS
            elif ENOUGH * costs.fixed < most * costs.per_row:
                most = max(UNTRIED_ROWS, math.ceil(ENOUGH * costs.fixed / costs.per_row))
    if limits.target_p99 is None or not costs.known:
        return most
    left = limits.target_p99 / 2.0 - costs.fixed
    if left <= costs.per_row:
        return 1
    if costs.per_row * most <= left:
        return most
    return int(left / costs.per_row)


MOST_LOAD = 0.95
"""A load that is measured as more counts as this: the measurement is too rough to tell by how much it is below 1."""
LEAST_FIXED = 0.02
"""Rows that are worth the fixed part of a run at least, whatever was seen: a message there and back is in no run's time. And where much waits, runs
become larger by it, which shows whether they should."""


def cut(rows: int, limits: Limits, costs: CostModel, arriving: float, replicas: int) -> int:
    """How many of `rows` waiting rows, of which `arriving` come in a second, go into the run that is due.

    One run answers the first row when the last is done. If k runs share the rows, each row is answered earlier, by rows * per_row / 2 * (1 - 1/k)
    on average. But every run costs a fixed part, for which all wait that come later; and the busier the replicas, the more come before the queue
    is empty: 1 / (1 - load) times as many. So what k costs is k * fixed / (1 - load) + rows * per_row / k; the best k is the first that is not
    worse than the next, k * (k + 1) >= rows * per_row * (1 - load) / fixed. That is one run where the fixed part dominates, and row by row where
    there is none. The load counts rows as long as they take now, with their share of the fixed part: it is what small runs cost that makes
    callers wait who answer an answer with the next request.
    """
    limit = row_limit(limits, costs)
    if rows <= 1 or (parts := rows / _break_even(limits, costs, arriving, replicas)) <= 2.0:
        return limit
    runs = rows if rows * (rows - 1) <= parts else math.ceil(math.sqrt(0.25 + parts) - 0.5)
    return min(math.ceil(rows / runs), limit)


SMALLER = 8
"""Of so many runs that are full while more waits one is half as large, where that costs little. It shows whether smaller ones are quicker."""
LARGER = 4 * SMALLER
"""Of so many runs one is larger than it should be. Without it a model that once looked as if it had no fixed part would run row by row for ever,
and nobody would see when that has changed."""


def trial(best: int, rows: int, limits: Limits, costs: CostModel) -> int:
    """What `cut` says, but now and then another size, to see how long such runs take. Admission asks `cut` alone."""
    if costs.runs % SMALLER or limits.policy == "timer":
        return best
    limit = row_limit(limits, costs)
    if best < limit:
        return best if costs.runs % LARGER else min(2 * best + 2, limit)
    if rows > limit > 1 and costs.outweighed < limit:
        return limit // 2
    return best


AHEAD = 1.3
"""Times the break-even."""
SHORT = 0.05
"""Seconds of a run to which waiting for the daemon adds something worth having. What is not sealed may still move to another replica."""


def ahead(limits: Limits, costs: CostModel, arriving: float, replicas: int) -> float:
    """Waiting rows from which the next run is sealed while one runs, so that the replica need not wait for the daemon in between: a full run; or,
    where runs are short or nobody could take over, so many that what still comes would hardly join the next run anyway (`cut` makes two runs of
    twice the break-even).
    """
    limit = row_limit(limits, costs)
    if replicas > 1 and costs.usual > SHORT:
        return limit
    return min(limit, AHEAD * _break_even(limits, costs, arriving, replicas))


def _break_even(limits: Limits, costs: CostModel, arriving: float, replicas: int) -> float:
    """Rows whose own time is worth the fixed part of a run, which counts for all who come later; infinite where several runs gain nothing, or where
    it is not known whether they would."""
    if limits.policy == "timer" or not costs.split or not costs.per_row:
        return math.inf
    load = min(arriving * costs.each / replicas, MOST_LOAD)
    return max(costs.fixed / costs.per_row, LEAST_FIXED) / (1.0 - load)


def worth_merging(rows: int, costs: CostModel) -> bool:
    """Should an idle replica add to its own `rows` what waits for a busy sibling, instead of leaving it there?

    Yes while the fixed part outweighs the rows: a joint run costs less than two. Where the rows outweigh it, two replicas that share them are
    faster. `adaptive` relies on this: a replica held back gathers nothing if arrivals go to the shorter queue of the busy one.
    """
    return costs.known and costs.per_row * rows < costs.fixed


PATIENCE = 5.0
"""Seconds that no run is too long for."""
FAR_BEYOND = 20.0
"""Times its estimate: a run that has lasted so long does not end any more."""
PATIENCE_UNKNOWN = 120.0
"""The same as PATIENCE while little is known of the model: the first runs may compile or unpack."""


def longest_run(rows: int, costs: CostModel) -> float:
    """Seconds from which a run that nobody waits for any more counts as stuck."""
    return max(PATIENCE, FAR_BEYOND * costs.estimate(rows)) if costs.known else PATIENCE_UNKNOWN


class Prospect(NamedTuple):
    """What a request that arrives now has to expect, in seconds."""

    wait: float
    """Until it begins to run."""
    ends: float
    """Until it is answered."""


def prospect(rows: int, ahead: int, free: Sequence[float], each: int, costs: CostModel) -> Prospect:
    """What `rows` more rows have to expect behind `ahead` others of their model.

    `free`: in how many seconds each replica has ended what it was given; runs have up to `each` rows. A run that begins at once is its own; a
    later one is shared with whoever comes before it begins, so it is taken to be full.
    """
    runs = ahead // each
    rounds, turn = divmod(runs, len(free))
    full = costs.estimate(each)
    wait = sorted(free)[turn] + rounds * full
    if rows > each:
        return Prospect(wait, wait + math.ceil(rows / each) * full)
    return Prospect(wait, wait + (full if wait > 0.0 else costs.estimate(ahead + rows)))


def remaining(rows: int, elapsed: float, costs: CostModel) -> float:
    """Seconds that a run will still take. One that should have ended takes a tenth more, again and again."""
    whole = costs.estimate(rows)
    return max(whole - elapsed, 0.1 * whole)


class Allowance:
    """How much of the time that requests have admission may promise: nearly all of it, less where promises were not kept.

    The share falls with each run that answers somebody too late and rises with each other one, by so much less that both weigh the same at
    one late run in `late`. So noise of the machine, and what no estimate knows of, have their room. A run that needed less than `ample` of the time
    shows that there is room to spare, and counts as much as a late one: few runs end under light load, and they must not be few for long.
    """

    __slots__ = ("ample", "rise", "share")

    FALL = 0.03
    LEAST, FIRST, MOST = 0.5, 0.8, 0.95
    BEGINS = 32
    """Runs of a model from which on promises count: whoever woke it was promised nothing."""

    def __init__(self, late: int, ample: float) -> None:
        self.rise, self.ample = self.FALL / (late - 1), ample
        self.share = self.FIRST

    @classmethod
    def of_target(cls) -> Self:
        """A target is meant for 99 % of all requests."""
        return cls(late=50, ample=0.5)

    @classmethod
    def of_deadline(cls) -> Self:
        """A deadline is meant for all, and who waits for half of it is in no hurry."""
        return cls(late=1000, ample=0.25)

    def observe(self, took: float) -> None:
        """Learn from a run: how long its first member waited and ran, as a part of the time that it had."""
        if took > 1.0:
            self.share = max(self.share * (1.0 - self.FALL), self.LEAST)
        else:
            self.share = min(self.share * (1.0 + (self.FALL if took < self.ample else self.rise)), self.MOST)


def fitting(rows: int, left: float, costs: CostModel) -> int:
    """How many of `rows` rows can run within `left` seconds; all of them where not even one can, or nothing is known."""
    if not costs.known or left == math.inf or costs.estimate(rows) <= left or costs.estimate(1) > left:
        return rows
    return max(int((left - costs.fixed) / costs.per_row), 1)


def too_late(begins: float, rows: int, limits: Limits, costs: CostModel) -> tuple[float, float]:
    """Whom a run that begins then would serve in vain: requests with a deadline until the first of these moments, and those that arrived before the
    second.

    A request that cannot be answered by its deadline is worth no run. With a target, under pressure (a run of `rows` will be full), neither is
    one that misses it: it would make others miss it too.
    """
    if not costs.known:
        return begins, -math.inf
    alone, full = costs.estimate(1), costs.estimate(rows)
    if limits.target_p99 is None or full > limits.target_p99:
        return begins + alone, -math.inf
    return begins + alone, begins + full - limits.target_p99
