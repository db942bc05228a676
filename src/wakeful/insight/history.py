"""What the last seconds, minutes and hours were like: rings of fixed size, one set for each model that has ever woken, and one for the daemon.

Time goes in whole steps that the caller counts. A ring is 12 columns of numbers and, in the two finer ones, 18 counts of latencies a step: together
94 KB a model, however long it lives.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wakeful.telemetry.metrics import LATENCY_BOUNDS

COUNTERS = ("requests", "failures", "rows", "runs", "queue_seconds", "run_seconds", "seconds")
"""What happened in a step: they add up."""
GAUGES = ("queue", "running", "replicas", "private", "shared")
"""How it was: of a longer step the largest value is kept."""
WHOLE = frozenset({"requests", "failures", "rows", "runs", "queue", "running", "replicas", "private", "shared"})
"""Columns of whole numbers."""
BUCKETS = len(LATENCY_BOUNDS)
WINDOW = 60
"""Seconds that rates and percentiles are of."""


Held = NDArray[np.int64]
"""Bytes, oldest first, up to now; of steps of which nothing is known there is none."""
_PRIVATE, _SHARED = (len(COUNTERS) + GAUGES.index(name) for name in ("private", "shared"))


class Span(NamedTuple):
    step: int
    """Seconds."""
    length: int
    """Steps that are kept."""
    latencies: bool


SPANS = {"5m": Span(1, 300, True), "1h": Span(10, 360, True), "24h": Span(300, 288, False)}


class Window(NamedTuple):
    """The last minute, or what there is of it."""

    seconds: int
    sums: Sequence[float]
    """By COUNTERS."""
    latencies: Sequence[int]

    def rate(self, counter: str) -> float:
        """Per second."""
        return self.sums[COUNTERS.index(counter)] / self.seconds

    @property
    def rows_per_run(self) -> float | None:
        rows, runs = self.sums[COUNTERS.index("rows")], self.sums[COUNTERS.index("runs")]
        return rows / runs if runs else None


def percentile(counts: Sequence[int], share: float) -> float | None:
    """Seconds that `share` of those counted took at most, by LATENCY_BOUNDS: within a bucket as if they were spread evenly. None: nobody was."""
    total = sum(counts)
    if not total:
        return None
    wanted, below = share * total, 0
    for index, count in enumerate(counts):
        if count and below + count >= wanted:
            low = LATENCY_BOUNDS[index - 1] if index else 0.0
            return low + (LATENCY_BOUNDS[index] - low) * (wanted - below) / count
        below += count
    return LATENCY_BOUNDS[-1]


class Ring:
    """Steps are numbered; number n lies in row n modulo the length."""

    def __init__(self, span: Span, first: int) -> None:
        """`first`: number of the first second that is recorded."""
        self.span = span
        self.first = self.last = first // span.step
        self._values: NDArray[np.float32] = np.zeros((span.length, len(COUNTERS) + len(GAUGES)), np.float32)
        self._latencies: NDArray[np.uint32] | None = np.zeros((span.length, BUCKETS), np.uint32) if span.latencies else None

    def record(self, second: int, values: NDArray[np.float32], latencies: NDArray[np.uint32] | None) -> None:
        number = second // self.span.step
        row = number % self.span.length
        mine = self._values[row]
        if number > self.last:
            self._advance(number)
            mine[:] = values
        else:
            mine[: len(COUNTERS)] += values[: len(COUNTERS)]
            np.maximum(mine[len(COUNTERS) :], values[len(COUNTERS) :], out=mine[len(COUNTERS) :])
        if latencies is not None and self._latencies is not None:
            self._latencies[row] += latencies

    def _advance(self, number: int) -> None:
        """In between nothing happened, and all was as it was."""
        length = self.span.length
        still = self._values[self.last % length].copy()
        still[: len(COUNTERS)] = 0
        skipped = np.arange(max(self.last + 1, number - length + 1), number + 1) % length
        self._values[skipped] = still
        if self._latencies is not None:
            self._latencies[skipped] = 0
        self.last = number

    def _rows(self, second: int, count: int) -> tuple[NDArray[np.int64], int]:
        """Rows of the latest steps up to that second, at most `count`, oldest first; those that are not recorded yet are as `_advance` would have
        them. And how many before them nothing is known of."""
        number = second // self.span.step
        if number > self.last:
            self._advance(number)
        begin = number - count + 1
        known = max(begin, self.first)
        return np.arange(known, number + 1) % self.span.length, known - begin

    def columns(self, second: int) -> dict[str, list[float | None]]:
        """Every series, oldest first, up to that second."""
        rows, unknown = self._rows(second, self.span.length)
        values = self._values[rows]
        nothing: list[float | None] = [None] * unknown
        found = {}
        for index, name in enumerate((*COUNTERS, *GAUGES)):
            column = values[:, index]
            found[name] = nothing + (column.astype(np.int64) if name in WHOLE else column.astype(np.float64).round(6)).tolist()
        return found

    def held(self, second: int) -> Held:
        """Bytes in each step, private and shared together."""
        rows, _ = self._rows(second, self.span.length)
        held: Held = self._values[rows, _PRIVATE].astype(np.int64) + self._values[rows, _SHARED].astype(np.int64)
        return held

    def latencies(self, second: int) -> list[list[int] | None]:
        """Counts by LATENCY_BOUNDS of each step; None where they are not kept."""
        rows, unknown = self._rows(second, self.span.length)
        nothing: list[list[int] | None] = [None] * unknown
        return nothing + ([None] * len(rows) if self._latencies is None else self._latencies[rows].tolist())

    def window(self, second: int) -> Window:
        """Of a ring with a step of a second."""
        number = second // self.span.step
        if number > self.last:
            self._advance(number)
        seconds = min(WINDOW, number - self.first + 1)
        end = number % self.span.length + 1
        begin = end - seconds
        values, latencies = self._values, self._latencies
        sums = values[max(begin, 0) : end, : len(COUNTERS)].sum(axis=0, dtype=np.float64)
        if begin < 0:  # the rest is at the other end
            sums += values[begin:, : len(COUNTERS)].sum(axis=0, dtype=np.float64)
        if latencies is None:
            return Window(seconds, sums.tolist(), [])
        counts = latencies[max(begin, 0) : end].sum(axis=0)
        if begin < 0:
            counts += latencies[begin:].sum(axis=0)
        return Window(seconds, sums.tolist(), counts.tolist())


class History:
    """Of one model, or of the daemon."""

    def __init__(self, first: int) -> None:
        self.rings = {name: Ring(span, first) for name, span in SPANS.items()}

    def record(self, second: int, values: Sequence[float], latencies: Sequence[int] | None) -> None:
        """What happened since the last record and how it is now, by COUNTERS and GAUGES. `latencies`: None for none."""
        row = np.array(values, np.float32)
        counts = None if latencies is None else np.array(latencies, np.uint32)
        for ring in self.rings.values():
            ring.record(second, row, counts)

    def window(self, second: int) -> Window:
        return self.rings["5m"].window(second)
