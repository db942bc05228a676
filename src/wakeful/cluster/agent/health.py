"""Which models that were loaded do not serve: replicas that die again and again, and loads that fail after one has succeeded. Pure."""

from collections import deque

DEATHS = 3
"""So many in so short a time are no accident."""
WITHIN = 60.0
"""Seconds."""


class Deaths:
    """Of the processes of each model."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}
        self._last: dict[str, str] = {}

    def add(self, model: str, now: float, text: str) -> None:
        self._times.setdefault(model, deque(maxlen=DEATHS)).append(now)
        self._last[model] = text

    def forget(self, model: str) -> None:
        self._times.pop(model, None)
        self._last.pop(model, None)

    def verdict(self, model: str, now: float) -> str:
        """Empty: nothing to complain of."""
        times = self._times.get(model)
        if times is None or len(times) < DEATHS or now - times[0] > WITHIN:
            return ""
        return f"its processes have died {DEATHS} times in {now - times[0]:.0f} s, the last one so: {self._last[model]}"


class Quiet:
    """Whether nobody comes any more to a model that no gateway sends to."""

    CALM = 1.0
    """Seconds without a request in flight."""
    LONGEST = 30.0
    """Seconds after which it is let go whatever comes: what is in flight is finished all the same."""

    def __init__(self, now: float) -> None:
        self._begun = now
        self._since = now
        self._arrived = -1

    def look(self, arrived: int, in_flight: int, now: float) -> bool:
        if in_flight or arrived != self._arrived:
            self._arrived, self._since = arrived, now
        return now - self._since >= self.CALM or now - self._begun >= self.LONGEST
