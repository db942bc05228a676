"""Requests to all models at once, second by second, as arrays: how many come, how many wait, how busy the copies are.

A model's copies are one queue, as least-request makes them: M/M/c by Sakasegawa's approximation (Lq = ρ^√(2(c+1)) / (1 - ρ)) below saturation, and
above it a backlog that grows by what comes too much. Popularity falls with the rank by Zipf's law; rates swing, and burst to six times.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RATE = 100.0
"""Requests a second that one copy can serve."""
TOP = 8.0
"""Requests a second to the most popular model, for each server replica that there is."""
SWING = 1200.0
"""Seconds of one swing up and down."""
FACTOR = 6.0
BURSTS_AN_HOUR = 0.06
"""Of each model."""
PATIENCE = 60.0
"""Seconds of work that wait at most; more is refused by the daemons."""
NEAR = 0.97
"""Share of the capacity from which on the backlog says how many wait, and not the formula."""
SESSION, PAUSE = 600.0, 7200.0
"""Seconds in which a model that is used now and then is used, and from one such time to the next."""


class Traffic:
    """What the clients do, and what becomes of it. The last twentieth of the models is used now and then."""

    def __init__(self, models: int, replicas: int, seconds: int, rng: np.random.Generator) -> None:
        self.last_used = np.zeros(models)
        self.overloaded = np.zeros(models)
        """Seconds in which more than half a second of work waited."""
        self.unserved = np.zeros(models)
        """Seconds in which requests came and no copy was there."""
        self.is_overloaded = np.zeros(models, bool)
        self.is_unserved = np.zeros(models, bool)
        self._seldom, self._rng = models // 20, rng
        self._backlog, self._lag, self._busy, self._period = np.zeros(models), np.zeros(models), np.zeros(models), 0
        ranks = np.arange(1, models + 1)
        self._base = TOP * replicas / ranks**0.9
        self._amplitude = np.where(ranks <= models // 20, 0.6, 0.2)
        self._phase, self._offset = rng.random(models) * 2 * np.pi, rng.random(models) * PAUSE
        self._factor = np.ones(models)
        self._bursts = self._drawn(models, seconds)

    def _drawn(self, models: int, seconds: int) -> list[tuple[int, int, float]]:
        """When, which model, by what factor; the next one last."""
        count = self._rng.poisson(BURSTS_AN_HOUR * models * seconds / 3600)
        who = self._rng.integers(0, models, count).tolist()
        starts = self._rng.integers(0, seconds, count)
        ends = starts + self._rng.integers(60, 240, count)
        begun = zip(starts.tolist(), who, [FACTOR] * count, strict=True)
        ended = zip(ends.tolist(), who, [1.0] * count, strict=True)
        return sorted([*begun, *ended], reverse=True)

    def second(self, now: float, copies: Floats) -> None:
        """One second passes; `copies` serve each model."""
        while self._bursts and self._bursts[-1][0] <= now:
            _, model, factor = self._bursts.pop()
            self._factor[model] = factor
        rate = self._base * (1 + self._amplitude * np.sin(now / SWING * 2 * np.pi + self._phase)) * self._factor
        if self._seldom:
            rate[-self._seldom :] *= (now + self._offset[-self._seldom :]) % PAUSE < SESSION
        arrived = self._rng.poisson(rate)
        capacity = copies * RATE
        served = copies > 0
        self._backlog = np.clip(self._backlog + arrived - capacity, 0.0, capacity * PATIENCE)
        share = np.divide(rate, capacity, out=np.zeros_like(rate), where=served)
        below = np.minimum(share, NEAR)
        queue = below ** np.sqrt(2 * (copies + 1)) / (1 - below)
        self._lag += np.where(served, copies * below + queue + self._backlog, 0.0)
        self._busy += np.minimum(share + (self._backlog > 0), 1.0) * copies
        self._period += 1
        used = arrived > 0
        self.last_used[used] = now
        self.is_unserved = used & ~served
        self.unserved += self.is_unserved
        self.is_overloaded = served & (self._backlog > capacity * 0.5)
        self.overloaded += self.is_overloaded

    def period(self) -> tuple[Floats, Floats]:
        """Lag and busy of each model, sums over its copies and means over the time since this was asked last."""
        means = self._lag / max(self._period, 1), self._busy / max(self._period, 1)
        self._lag, self._busy, self._period = np.zeros_like(self._lag), np.zeros_like(self._busy), 0
        return means
