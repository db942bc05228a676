"""What is remembered of one model beside its counters: its last minutes and hours, how it changed, why it sleeps."""

from collections import deque
from typing import NamedTuple

from wakeful.insight.counters import Counters, Reading, minus, read
from wakeful.insight.history import WINDOW, History, Window
from wakeful.telemetry.metrics import ModelStats

MOST_CHANGES = 512
"""Changes of state that are kept of a model."""


class Change(NamedTuple):
    time: float
    """Seconds since 1970."""
    state: str
    """As of the whole model; "ready" stands for busy too."""
    reason: str | None
    """The letter of wording.LETTERS."""


class Levels(NamedTuple):
    """How it is now, by history.GAUGES."""

    queue: int
    running: int
    replicas: int
    private: int
    shared: int


class Gone(NamedTuple):
    """How its last replica went."""

    reason: str
    wanted_by: str | None
    """The model that needed its room."""
    event: int
    """Its number."""
    time: float
    """Seconds since 1970."""


NOTHING = Levels(0, 0, 0, 0, 0)


class Track:
    """Made when a model wakes for the first time, kept over its sleep."""

    def __init__(self, stats: ModelStats, second: int, *, whole: bool = False) -> None:
        """`whole`: what was counted before has just happened."""
        self.stats = stats
        self.history = History(second)
        self.changes: deque[Change] = deque(maxlen=MOST_CHANGES)
        self.gone: Gone | None = None
        self.wake_seconds: float | None = None
        """How long its last wake took, without waiting for room."""
        self.moved = second
        """The last second in which something happened, or was otherwise than before."""
        self._last = read(ModelStats("") if whole else stats)
        self._levels = NOTHING
        self._rows: deque[tuple[int, list[int]]] = deque([(second, list(stats.batch_rows.counts))])
        """Seconds in which runs have ended, with the counts of their rows up to then; the first one is the last before the window."""

    def record(self, second: int, levels: Levels) -> tuple[Reading, Reading] | None:
        """Take note of the second that has passed; None: nothing has happened, and all is as it was. Else what was counted before, and now."""
        if levels == self._levels and sum(self.stats.requests.values()) == self._last.counters.requests and not levels.running:
            return None
        before, now = self._last, read(self.stats)
        if levels == self._levels and now.counters == before.counters:
            return None
        self._last, self._levels, self.moved = now, levels, second
        happened = difference(now.counters, before.counters)
        latencies = minus(now.latencies, before.latencies) if now.latencies != before.latencies else None
        self.history.record(second, (*happened, *levels), latencies)
        if now.counters.runs != before.counters.runs:
            self._rows.append((second, list(self.stats.batch_rows.counts)))
            self._forget(second)
        return before, now

    def _forget(self, second: int) -> None:
        while len(self._rows) > 1 and self._rows[1][0] <= second - WINDOW:
            self._rows.popleft()

    def rows_lately(self, second: int) -> list[int]:
        """Runs of the last minute, by telemetry.metrics.ROWS."""
        self._forget(second)
        return minus(self._rows[-1][1], self._rows[0][1])

    def window(self, second: int) -> Window | None:
        """None: nothing has happened in the last minute."""
        return self.history.window(second) if second - self.moved < WINDOW else None

    def changed(self, time: float, state: str, letter: str | None = None) -> None:
        if not self.changes or self.changes[-1].state != state:
            self.changes.append(Change(time, state, letter))

    @property
    def since(self) -> float | None:
        return self.changes[-1].time if self.changes else None


def difference(now: Counters, before: Counters) -> list[float]:
    return [one - other for one, other in zip(now, before, strict=True)]
