"""What is learnt of a model while it serves: how long its runs take, and how fast rows arrive."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from copy import deepcopy

MANY = 1 << 62
"""As many rows as anybody likes."""


class CostModel:
    """Run time of a batch, t(rows) = fixed + per_row * rows seconds, learnt from the runs of one model, or of one of its shape groups.

    A machine that others use too is twice as slow in one second as in the next, and large runs may happen to come in the slow one. So what is
    fixed and what is each row's is learnt from runs of different sizes that follow each other, as parts of the time that the two took together;
    how long both take now, from the latest runs. Where the row counts do not differ, the parts stay what they were; at first that is "everything
    is per row".
    """

    __slots__ = (
        "fixed", "per_row", "runs", "worthwhile", "_compared", "_last_rows", "_last_seconds", "_mean_rows", "_mean_seconds", "_products", "_sizes",
        "_squares",
    )

    MEMORY = 32
    """Runs after which an observation has lost most of its weight in the level."""
    PAIRS = 64
    """The same, in pairs of different runs, for the slope."""
    MIN_RUNS = 4
    """Observations before anything relies on the estimate; the first runs of a session are slow."""
    TICK = 1e-9
    """Seconds that every run takes."""
    SURPRISE = 4.0
    """One run counts as at most this many times its estimate, so that a hiccup does not look like the model."""
    STEEP = 1.5
    """Times its even share of the run, that a row is believed to take: more, or less than nothing by as much, is the machine."""
    INERTIA = 1e-3
    """Weight of the slope known so far, relative to that of a pair whose difference is all that it took."""

    def __init__(self) -> None:
        self.fixed = 0.0
        self.per_row = 0.0
        self.runs = 0
        self.worthwhile = MANY
        """Rows of the largest run that is not known to take longer for each row than smaller ones, or may be tried."""
        self._compared = 0
        self._last_rows = 0
        self._last_seconds = 0.0
        self._mean_rows = 0.0
        self._mean_seconds = 0.0
        self._products = 0.0
        self._sizes = _Sizes()
        self._squares = 0.0

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

    @property
    def outweighed(self) -> float:
        """Rows that together take twice as long as the fixed part: up to there a larger run is worth it even if its rows take somewhat longer."""
        return 2.0 * self.fixed / self.per_row if self.per_row else math.inf

    def estimate(self, rows: float) -> float:
        """Seconds that a run of `rows` rows takes; 0 while nothing was observed."""
        return self.fixed + self.per_row * rows

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a run that went well."""
        if rows < 1 or not 0.0 <= seconds < math.inf:
            return
        seconds = max(seconds, self.TICK)
        if self.known:
            seconds = min(seconds, self.SURPRISE * self.estimate(rows))
        self.runs += 1
        weight = 1.0 / min(self.runs, self.MEMORY)
        self._mean_rows += weight * (rows - self._mean_rows)
        self._mean_seconds += weight * (seconds - self._mean_seconds)
        if self.runs == 1:
            self.per_row = self.each
        elif rows != self._last_rows:
            self._compare(rows, seconds)
        self._keep_pace()
        self._last_rows, self._last_seconds = rows, seconds
        self.worthwhile = self._sizes.observe(rows, seconds, self)

    def _compare(self, rows: int, seconds: float) -> None:
        """Learn the slope from this run and the last: from their times relative to the time of both, so that small runs teach as much as large
        ones, and as if the machine had been as fast as it is taken to be."""
        more = rows - self._last_rows
        expected = self.estimate(rows) + self.estimate(self._last_rows)
        even = expected / (rows + self._last_rows)
        slope = (seconds - self._last_seconds) / more * expected / (seconds + self._last_seconds)
        slope = min(max(slope, (1.0 - self.STEEP) * even), self.STEEP * even)
        self._compared += 1
        weight = 1.0 / min(self._compared, self.PAIRS)
        square = (more * self.each / expected) ** 2
        self._squares += weight * (square - self._squares)
        self._products += weight * (square * slope - self._products)
        slope = (self._products + self.INERTIA * self.per_row) / (self._squares + self.INERTIA)
        level = self.estimate(self._mean_rows)
        share = min(max(slope * self._mean_rows / level, 0.0), 1.0)
        self.per_row, self.fixed = share * level / self._mean_rows, (1.0 - share) * level

    def _keep_pace(self) -> None:
        """Both parts, and what was learnt of the slope, change with the machine's speed."""
        pace = self._mean_seconds / self.estimate(self._mean_rows)
        self.fixed *= pace
        self.per_row *= pace
        self._products *= pace


SIZES = tuple(sorted({1 << power for power in range(62)} | {3 << power for power in range(60)}))
"""Rows of runs that are told apart: 1, 2, 3, 4, 6, 8, 12 and so on. A run counts as the next larger of them."""


class _Sizes:
    """Which sizes of runs are worth having. Runs that outgrow the processor's caches take longer for each row than smaller ones, which no straight
    line can tell. Again it is runs that follow each other that tell it.

    A size nobody has seen yet is tried a few times, and each time the next smaller one after it. For a queue that grows in a slow moment
    would otherwise be served in ever larger runs, which may be the reason that it goes on growing.
    """

    __slots__ = ("_last", "_last_each", "_seen")

    FREE = 12
    """Rows that a run may have before anything is known of such runs."""
    MARGIN = 0.01
    """A difference in time per row that counts, as a logarithm, once it is known well."""
    DOUBT = 4.0
    """Comparisons up to which a difference has to be more than twice as large."""
    FORGOTTEN = 500
    """Runs of any size after which what was seen of one size may have changed."""

    def __init__(self) -> None:
        self._last: _Size | None = None
        self._last_each = 0.0
        self._seen: dict[int, _Size] = {}
        """By place in SIZES, and in that order."""

    def observe(self, rows: int, seconds: float, line: CostModel) -> int:
        """Learn from a run; how many rows may the next have?"""
        place = bisect_left(SIZES, rows)
        each = math.log(seconds / line.estimate(rows) * _each(place, line))
        last, size = self._last, self._seen.get(place)
        if size is None or line.runs - size.last_run > self.FORGOTTEN:
            guess = 0.0 if last is None else last.each + math.log(_each(place, line) / _each(last.place, line))
            size = self._seen[place] = _Size(place, guess)
            self._seen = dict(sorted(self._seen.items()))
        size.last_run = line.runs
        if last is not None and last is not size:
            size.compare(last.each + each - self._last_each)
        self._last, self._last_each = size, each
        return self._largest(place, line)

    def _largest(self, last: int, line: CostModel) -> int:
        outweighed = line.outweighed
        best, largest = math.inf, bisect_right(SIZES, max(self.FREE, outweighed)) - 1
        for place, size in self._seen.items():
            if size.compared < _Size.COMPARISONS or line.runs - size.last_run > self.FORGOTTEN:
                continue
            if size.each > best + self.MARGIN * (1.0 + self.DOUBT / size.compared) and SIZES[place] > outweighed:
                return SIZES[place - 1]
            best, largest = min(best, size.each), max(largest, place)
        tried = min(largest + 1, len(SIZES) - 1)
        return SIZES[tried - (last == tried)]


def _each(place: int, line: CostModel) -> float:
    """Seconds of a row in a run of that size, if it lies on the line."""
    return line.fixed / SIZES[place] + line.per_row


class _Size:
    """What was seen of runs of one size."""

    __slots__ = ("compared", "each", "last_run", "place")

    MEMORY = 16
    COMPARISONS = 3
    """With other sizes, after which a size is known."""
    SURPRISE = 0.2
    """A comparison shows a difference of no more: the machine may have become slower in between."""

    def __init__(self, place: int, each: float) -> None:
        self.place = place
        self.each = each
        """Logarithm of the seconds of a row in a full run. Only what sizes differ by means anything."""
        self.compared = 0
        self.last_run = 0

    def compare(self, each: float) -> None:
        """Learn from a run that followed one of another size: a row took so long, if that one is the measure."""
        self.compared += 1
        more = min(max(each - self.each, -self.SURPRISE), self.SURPRISE)
        self.each += more / min(self.compared, self.MEMORY)


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
