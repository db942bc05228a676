"""What is learnt of a model while it serves: how long its runs take, and how fast rows arrive."""

import math
from collections.abc import Hashable
from copy import deepcopy

MANY = 1 << 62
"""As many rows as anybody likes."""


class CostModel:
    """Run time of a batch, t(rows) = fixed + per_row * rows seconds, learnt from the runs of one model, or of one of its shape groups.

    A machine that others use too is twice as slow in one second as in the next, and large runs may happen to come in the slow one. So the
    slope is learnt from the differences between runs that follow each other, which such changes hardly touch, and the level from the latest
    runs. Two runs that took longer than they should count the less: one large run in a slow moment outweighs a hundred others. Where the
    row counts do not differ, the slope stays what it was; at first that is "everything is per row".
    """

    __slots__ = (
        "fixed", "per_row", "runs", "worthwhile", "_compared", "_curve", "_last_rows", "_last_seconds", "_mean_rows", "_mean_seconds", "_products",
        "_squares",
    )

    MEMORY = 32
    """Runs after which an observation has lost most of its weight in the level."""
    PAIRS = 64
    """The same, in pairs of different runs, for the slope."""
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
        self.worthwhile = MANY
        """Rows of the largest runs that do not take longer for each row than smaller ones."""
        self._curve: dict[int, _Size] = {}
        self._compared = 0
        self._last_rows = 0
        self._last_seconds = 0.0
        self._mean_rows = 0.0
        self._mean_seconds = 0.0
        self._squares = 0.0
        self._products = 0.0

    @property
    def known(self) -> bool:
        return self.runs >= self.MIN_RUNS

    @property
    def split(self) -> bool:
        """Have runs of different sizes shown which part of their time is fixed?"""
        return self._compared >= self.MIN_RUNS

    @property
    def usual(self) -> float:
        """Seconds of one of the latest runs; 0 while nothing was observed."""
        return self._mean_seconds

    @property
    def each(self) -> float:
        """Seconds that a row took in the latest runs, with its share of the fixed part."""
        return self._mean_seconds / self._mean_rows if self.runs else 0.0

    def estimate(self, rows: int) -> float:
        """Seconds that a run of `rows` rows takes; 0 while nothing was observed."""
        return self.fixed + self.per_row * rows

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a run that went well."""
        if rows < 1 or not 0.0 <= seconds < math.inf:
            return
        expected = self.estimate(rows)
        if self.known and self._mean_seconds > 0.0:
            seconds = min(seconds, self.SURPRISE * expected)
        self.runs += 1
        weight = 1.0 / min(self.runs, self.MEMORY)
        self._mean_rows += weight * (rows - self._mean_rows)
        self._mean_seconds += weight * (seconds - self._mean_seconds)
        more = rows - self._last_rows
        if more and self._last_rows:
            self._compared += 1
            weight = 1.0 / min(self._compared, self.PAIRS)
            expected += self.estimate(self._last_rows)
            if self.split and seconds + self._last_seconds > expected > 0.0:
                weight *= (expected / (seconds + self._last_seconds)) ** 2
            self._squares += weight * (more * more - self._squares)
            self._products += weight * (more * (seconds - self._last_seconds) - self._products)
        self._last_rows, self._last_seconds = rows, seconds
        self._solve()
        self._look_at_sizes(rows, seconds)

    def _solve(self) -> None:
        through_origin = self._mean_seconds / self._mean_rows
        known_slope = self.per_row if self.runs > 1 else through_origin
        inertia = self.INERTIA * self._mean_rows * self._mean_rows
        slope = (self._products + inertia * known_slope) / (self._squares + inertia)
        self.per_row = min(max(slope, 0.0), through_origin)
        self.fixed = max(self._mean_seconds - self.per_row * self._mean_rows, 0.0)

    def _look_at_sizes(self, rows: int, seconds: float) -> None:
        """Runs that outgrow the processor's caches take longer for each row than smaller ones, which no straight line can tell: by how much each
        size is off the line is what tells it, again whatever the machine's speed is at the moment."""
        line = self.estimate(rows)
        if line <= 0.0:
            return
        power = (rows - 1).bit_length()
        size = self._curve.get(power)
        if size is None or self.runs - size.last_run > _Size.FORGOTTEN:
            size = self._curve[power] = _Size()
        size.observe(rows, seconds / line, self.runs)
        best, self.worthwhile = math.inf, MANY
        for power in sorted(self._curve):
            size = self._curve[power]
            if size.runs < _Size.MIN_RUNS or self.runs - size.last_run > _Size.FORGOTTEN:
                continue
            per_row = size.off * (self.fixed / size.rows + self.per_row)
            if per_row > _Size.MARGIN * best:
                self.worthwhile = 1 << (power - 1)
                break
            best = min(best, per_row)


class _Size:
    """Runs of more than half of 2^n rows and at most so many."""

    __slots__ = ("last_run", "off", "rows", "runs")

    MEMORY = 16
    MIN_RUNS = 8
    MARGIN = 1.01
    """A difference in time per row that counts."""
    FORGOTTEN = 500
    """Runs of any size after which what was seen of one size may have changed."""

    def __init__(self) -> None:
        self.rows = 0.0
        self.off = 0.0
        """Times what the straight line says."""
        self.runs = 0
        self.last_run = 0

    def observe(self, rows: int, off: float, run: int) -> None:
        self.runs += 1
        self.last_run = run
        weight = 1.0 / min(self.runs, self.MEMORY)
        self.rows += weight * (rows - self.rows)
        self.off += weight * (off - self.off)


class GroupCosts:
    """The runs of one model by shape group: long texts take longer than short ones. A group that has run too rarely is taken to be like all."""

    __slots__ = ("all", "_first", "_groups")

    MOST = 256
    """Groups that are remembered; callers may send any number of shapes."""

    def __init__(self) -> None:
        self.all = CostModel()
        self._first: Hashable = self
        """The first group that ran. As long as there is no other, what is known of all is what is known of it."""
        self._groups: dict[Hashable, CostModel] = {}

    def of(self, group: Hashable) -> CostModel:
        """The best that is known of a group's runs."""
        own = self._groups.get(group)
        return own if own is not None and own.known else self.all

    def observe(self, group: Hashable, rows: int, seconds: float) -> None:
        """Learn from a run that went well."""
        if not self._groups:
            if self._first is self:
                self._first = group
            if group == self._first:
                self.all.observe(rows, seconds)
                return
            self._groups[self._first] = deepcopy(self.all)
        self.all.observe(rows, seconds)
        own = self._groups.get(group)
        if own is None:
            if len(self._groups) >= self.MOST:
                self._groups.clear()
            own = self._groups[group] = CostModel()
        own.observe(rows, seconds)


class ArrivalRate:
    """Rows that arrive in a second, the past weighted by exp(-age / window)."""

    __slots__ = ("window", "_first", "_last", "_mass")

    WINDOW = 0.25
    """Seconds, while nothing is known of the model."""
    RUNS = 125.0
    """Runs of one row that the window is long: a few arrivals say nothing of a rate, and what was long ago nothing of now."""
    SHORTEST, LONGEST = 0.05, 10.0
    QUIET = 0.5
    """Rows in the window: with less there is no traffic."""
    PLENTY = 8.0
    """Rows in the window from which on they tell a rate, though traffic has only begun."""
    LEAST = 0.1
    """Part of the window that has to be seen before it tells a rate."""

    def __init__(self) -> None:
        self.window = self.WINDOW
        self._mass = 0.0
        self._last = 0.0
        self._first = 0.0
        """The first arrival after a quiet time: of what was before it, the window holds nothing."""

    def observe(self, now: float, rows: int) -> None:
        self._mass *= math.exp((self._last - now) / self.window) if self._mass else 0.0
        if self._mass < self.QUIET:
            self._first = now
        self._mass += rows
        self._last = now

    def rate(self, now: float) -> float:
        mass = self._mass * math.exp((self._last - now) / self.window)
        return mass / self._span(now, mass)

    def suit(self, costs: CostModel) -> None:
        """Look as far back as suits a model of these run times."""
        window = min(max(self.RUNS * costs.estimate(1), self.SHORTEST), self.LONGEST)
        if not 0.7 < window / self.window < 1.4:
            rate = self._mass / self._span(self._last, self._mass)
            self.window = window
            self._mass = rate * self._span(self._last, rate * window)

    def _span(self, now: float, mass: float) -> float:
        """The window, in seconds, as far as there was traffic in it."""
        if mass < self.PLENTY:
            return self.window
        return self.window * -math.expm1(-max((now - self._first) / self.window, self.LEAST))
