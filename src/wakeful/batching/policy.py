"""When is a batch cut, and how large may it be: pure functions of (view, now, limits) and of what was learnt about the model.

Both policies answer with the time at which the next batch of a replica is due. They are asked on every arrival, so they allocate nothing, and
they count on being asked again whenever something changes (an arrival, the end of a run, a request taken away).

A batch is cut late: while a replica runs, the next batch gathers for free, so only a full one is sealed ahead into the second slot.
How many rows a run may hold at most is `row_limit`; how many of those that wait it should hold is `cut`.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

NEVER = math.inf
"""Not before something changes."""

NOW = 0.0


class CostModel:
    """Run time of a batch, t(rows) = fixed + per_row * rows seconds, learnt from the runs of one model, or of one of its shape groups.

    Exponentially weighted least squares over means and (co)variances (West 1979), which do not cancel as raw sums would. Where the row counts
    hardly differ, the slope cannot be seen and stays what it was; at first that is "everything is per row", which never makes a
    batch wait, so that other row counts come about and correct it.
    """

    __slots__ = ("fixed", "per_row", "runs", "_last_rows", "_compared", "_mean_rows", "_mean_seconds", "_variance", "_covariance")

    MEMORY = 64
    """Runs after which an observation has lost most of its weight."""
    MIN_RUNS = 4
    """Observations before anything relies on the estimate; the first runs of a session are slow."""
    SURPRISE = 4.0
    """One run counts as at most this many times its estimate, so that a hiccup does not look like the model."""
    INERTIA = 1e-3
    """Weight of the slope known so far, as a variance relative to the squared mean row count."""

    def __init__(self) -> None:
        self.fixed = 0.0
        self.per_row = 0.0
        self.runs = 0
        self._last_rows = 0
        self._compared = 0
        self._mean_rows = 0.0
        self._mean_seconds = 0.0
        self._variance = 0.0
        self._covariance = 0.0

    @property
    def known(self) -> bool:
        return self.runs >= self.MIN_RUNS

    @property
    def split(self) -> bool:
        """Have runs of different sizes shown which part of their time is fixed?"""
        return self._compared >= self.MIN_RUNS

    def estimate(self, rows: int) -> float:
        """Seconds that a run of `rows` rows takes; 0 while nothing was observed."""
        return self.fixed + self.per_row * rows

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a run that went well."""
        if rows < 1 or not 0.0 <= seconds < math.inf:
            return
        if self.known and self._mean_seconds > 0.0:
            seconds = min(seconds, self.SURPRISE * self.estimate(rows))
        self.runs += 1
        self._compared += rows != self._last_rows
        self._last_rows = rows
        weight = max(1.0 / self.runs, 1.0 / self.MEMORY)
        off_rows, off_seconds = rows - self._mean_rows, seconds - self._mean_seconds
        self._mean_rows += weight * off_rows
        self._mean_seconds += weight * off_seconds
        self._variance = (1.0 - weight) * (self._variance + weight * off_rows * off_rows)
        self._covariance = (1.0 - weight) * (self._covariance + weight * off_rows * off_seconds)
        self._solve()

    def _solve(self) -> None:
        through_origin = self._mean_seconds / self._mean_rows
        known_slope = self.per_row if self.runs > 1 else through_origin
        inertia = self.INERTIA * self._mean_rows * self._mean_rows
        slope = (self._covariance + inertia * known_slope) / (self._variance + inertia)
        self.per_row = min(max(slope, 0.0), through_origin)
        self.fixed = max(self._mean_seconds - self.per_row * self._mean_rows, 0.0)


class GroupCosts:
    """The runs of one model by shape group: long texts take longer than short ones. A group that has run too rarely is taken to be like all."""

    __slots__ = ("all", "_groups")

    MOST = 256
    """Groups that are remembered; callers may send any number of shapes."""

    def __init__(self) -> None:
        self.all = CostModel()
        self._groups: dict[Hashable, CostModel] = {}

    def of(self, group: Hashable) -> CostModel:
        """The best that is known of a group's runs."""
        own = self._groups.get(group)
        return own if own is not None and own.known else self.all

    def observe(self, group: Hashable, rows: int, seconds: float) -> None:
        """Learn from a run that went well."""
        self.all.observe(rows, seconds)
        own = self._groups.get(group)
        if own is None:
            if len(self._groups) >= self.MOST:
                self._groups.clear()
            own = self._groups[group] = CostModel()
        own.observe(rows, seconds)


class ArrivalRate:
    """Rows that arrive in a second, the past weighted by exp(-age / TIME_CONSTANT)."""

    __slots__ = ("_mass", "_last")

    TIME_CONSTANT = 0.25

    def __init__(self) -> None:
        self._mass = 0.0
        self._last = 0.0

    def observe(self, now: float, rows: int) -> None:
        self._mass = self._mass * math.exp((self._last - now) / self.TIME_CONSTANT) + rows if self._mass else float(rows)
        self._last = now

    def rate(self, now: float) -> float:
        return self._mass * math.exp((self._last - now) / self.TIME_CONSTANT) / self.TIME_CONSTANT


@dataclass(slots=True)
class Limits:
    """What a batch may be. `max_rows` may be lower than configured: a fixed axis 0, or the size that was found safe for memory."""

    max_rows: int = 16
    max_delay: float = 0.010
    target_p99: float | None = None
    policy: Literal["adaptive", "timer"] = "adaptive"


class View(NamedTuple):
    """One replica and its siblings at the moment of the question."""

    rows: int
    """Waiting rows of the group that is next."""
    oldest: float
    """Arrival of its oldest request."""
    in_flight: int
    """Runs that this replica has begun or been given."""
    siblings_busy: int
    siblings_idle: int
    slots_free: int
    behind: int = 0
    """Waiting rows of other groups: they gain nothing from this group's wait."""


Policy = Callable[[View, float, Limits, CostModel, ArrivalRate], float]


def timer(view: View, now: float, limits: Limits, costs: CostModel, rate: ArrivalRate) -> float:  # noqa: ARG001 - the shape of every policy
    """The two triggers: as many rows as a run may hold, or `max_delay` since the oldest arrived, whichever is first."""
    rows, oldest, in_flight, _, _, slots_free, behind = view
    if not slots_free or not rows:
        return NEVER
    limit = row_limit(limits, costs)
    if rows >= limit:
        return NOW
    if in_flight:
        return NEVER
    if rows + behind >= limit:
        return NOW
    return oldest + limits.max_delay


def adaptive(view: View, now: float, limits: Limits, costs: CostModel, rate: ArrivalRate) -> float:
    """Never later than `timer`, and at once where waiting gains nothing.

    A model whose replicas are all idle runs at once: what arrives meanwhile gathers for free. An idle replica beside a busy one is the only one
    that waits, for up to t(rows) / replicas since the oldest arrival, so that the replicas' runs follow each other evenly instead of
    starting together with one row in the second. It stops waiting as soon as the rows are worth their run: their own part of its time
    is as long as the fixed part, or there are twice as many as a steady stream would bring, which is the n where n = rate * t(n) / replicas.
    The end of a sibling's run ends the wait by itself, the policy being asked again with one busy sibling less.
    """
    rows, oldest, in_flight, busy, idle, slots_free, behind = view
    if not slots_free or not rows:
        return NEVER
    limit = row_limit(limits, costs)
    if rows >= limit:
        return NOW
    if in_flight:
        return NEVER
    if not busy or rows + behind >= limit or costs.runs < costs.MIN_RUNS:
        return NOW
    own = costs.per_row * rows
    if own >= costs.fixed:
        return NOW
    replicas = 1 + busy + idle
    arriving = rate.rate(now)
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
"""Rows that a run may hold, if the settings allow it, whatever its cost, and where nothing is known of it."""


def row_limit(limits: Limits, costs: CostModel) -> int:
    """Rows that a run may hold. What the settings allow; less where more saves nothing; with a target, as many (at least 1) as keep waiting for
    one full run and then running, 2 t(n), under it."""
    most = limits.max_rows
    if most > UNTRIED_ROWS and limits.policy == "adaptive":
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


THRIFT = 0.8
"""Of `cut`: the weight of the time that larger runs save against the time that rows wait for those behind them. Found in simulation."""
MOST_LOAD = 0.95
"""A load that is measured as more counts as this: the measurement is too rough to tell by how much it is below 1."""


TRIAL = 32
"""Of so many runs one is larger than it should be. Without it a model that once looked as if it had no fixed part would run row by row for ever,
and nobody would see when that has changed."""


def cut(rows: int, limits: Limits, costs: CostModel, arriving: float, replicas: int) -> int:
    """How many of `rows` waiting rows, of which `arriving` come in a second, go into the run that is due.

    A run of all answers the first when the last is done. Runs of n answer each row n * per_row / 2 earlier, on average, and each of the
    rows / n of them costs a fixed part, which all that come later wait for; and the busier the replicas, the more come before the queue is
    empty: 1 / (1 - load) times as many. The sum is least at n = sqrt(rows / (1 - load) * fixed / per_row): nearly all that waits where the fixed part
    dominates, one row after the other where there is none.
    """
    limit = row_limit(limits, costs)
    if rows <= 1 or limits.policy == "timer" or not costs.split:
        return limit
    load = min(arriving * costs.per_row / replicas, MOST_LOAD)
    square = THRIFT * rows * costs.fixed
    each = costs.per_row * (1.0 - load)
    if square >= each * limit * limit:
        return limit
    best = max(math.ceil(math.sqrt(square / each)), 1)
    return best if costs.runs % TRIAL else min(2 * best + 2, limit)


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


def prospect(rows: int, ahead: int, free: Sequence[float], each: int, arriving: float, costs: CostModel) -> Prospect:
    """What `rows` more rows have to expect behind `ahead` others of their model.

    `free`: in how many seconds each replica has ended what it was given; runs have `each` rows. Its run is not its own: who comes before
    it begins, and finds room, shares it.
    """
    runs, before = divmod(ahead, each)
    replicas = len(free)
    rounds, turn = divmod(runs, replicas)
    full = costs.estimate(each)
    wait = sorted(free)[turn] + rounds * full
    if rows > each:
        return Prospect(wait, wait + math.ceil(rows / each) * full)
    shared = min(before + rows + int(arriving * wait), each)
    return Prospect(wait, wait + costs.estimate(shared))


def remaining(rows: int, elapsed: float, costs: CostModel) -> float:
    """Seconds that a run will still take. One that should have ended takes a tenth more, again and again."""
    whole = costs.estimate(rows)
    return max(whole - elapsed, 0.1 * whole)


class Allowance:
    """How much of the latency target admission may promise: all of it, less where promises were not kept.

    The share falls with each answer that came too late and rises with each that came in time, by so much less that both weigh the same at
    one late answer in a hundred. So noise of the machine, and what no estimate knows of, have their room.
    """

    __slots__ = ("share",)

    FALL = 0.01
    RISE = FALL / 99.0
    LEAST = 0.3

    def __init__(self) -> None:
        self.share = 1.0

    def observe(self, in_time: bool) -> None:
        """Learn from an answer."""
        if in_time:
            self.share = min(self.share * (1.0 + self.RISE), 1.0)
        else:
            self.share = max(self.share * (1.0 - self.FALL), self.LEAST)


def fitting(rows: int, left: float, costs: CostModel) -> int:
    """How many of `rows` rows can run within `left` seconds; all of them where not even one can, or nothing is known."""
    if not costs.known or left == math.inf or costs.estimate(rows) <= left or costs.estimate(1) > left:
        return rows
    return max(int((left - costs.fixed) / costs.per_row), 1)


def too_late(now: float, limits: Limits, costs: CostModel) -> tuple[float, float]:
    """Whom a run would serve in vain: requests with a deadline until the first of these moments, and those that arrived before the second.

    A request that cannot be answered by its deadline is worth no run. With a target, under pressure, neither is one that misses it: it would
    make others miss it too.
    """
    if not costs.known:
        return now, -math.inf
    soonest = now + costs.estimate(1)
    if limits.target_p99 is None or costs.estimate(1) > limits.target_p99:
        return soonest, -math.inf
    return soonest, soonest - limits.target_p99
