"""How much a model is used: figures of a period from counters that never fall, and which thresholds they cross. Pure."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from wakeful.cluster.wire import Trigger, UseNow


class Reading(NamedTuple):
    """Of one model's counters, at one moment. Times are monotonic seconds."""

    time: float
    completed: int
    """Requests that have ended, in whatever way, since the daemon began."""
    in_flight: int
    """That have arrived and not ended; those that wait for the model to wake among them."""
    spent: float
    """Sum of the seconds that each of the completed was in flight."""
    spending: float
    """The same of those that are in flight, until now."""
    busy: float
    """Sum of the seconds that each of its replicas was in a run, until now."""
    replicas: int
    last_used: float | None
    """When the last request arrived; None: never."""

    @property
    def arrived(self) -> int:
        return self.completed + self.in_flight


def use(before: Reading, now: Reading, wall: float) -> UseNow:
    """What has happened between two readings. `wall`: what is to be added to a monotonic time for seconds since 1970.

    The time-weighted mean of the requests in flight is the integral of their number, which is the sum of the time that each of them was in flight in
    the period, over its length: nothing has to be counted on a request's way for that.
    """
    seconds = max(now.time - before.time, 1e-9)
    lag = max(0.0, (now.spent + now.spending - before.spent - before.spending) / seconds)
    busy = min(1.0, max(0.0, (now.busy - before.busy) / (seconds * max(1, now.replicas))))
    rate = round(max(0.0, (now.arrived - before.arrived) / seconds), 3)
    last = 0.0 if now.last_used is None else now.last_used + wall
    return UseNow(now.arrived, now.completed, round(lag, 3), round(busy, 3), round(last, 2), rate)


class Thresholds(NamedTuple):
    """None: nobody wants to know."""

    lag: float | None
    inactive: float | None
    """Seconds."""


class Watch:
    """Which models are beyond a threshold. Each is told once, when it gets there."""

    def __init__(self) -> None:
        self._beyond: set[tuple[str, Literal["lag", "inactive"]]] = set()

    def forget(self) -> None:
        """Somebody listens who was told nothing."""
        self._beyond.clear()

    def look(self, uses: Mapping[str, tuple[UseNow, float]], thresholds: Mapping[str, Thresholds]) -> list[Trigger]:
        """`uses`: by model, with the seconds since its last request, or since it came."""
        triggers: list[Trigger] = []
        beyond: set[tuple[str, Literal["lag", "inactive"]]] = set()
        for model, (figures, idle) in uses.items():
            limits = thresholds.get(model)
            if limits is None:
                continue
            if limits.lag is not None and figures.lag >= limits.lag:
                beyond.add((model, "lag"))
                triggers.append(Trigger(model, "lag"))
            if limits.inactive is not None and idle >= limits.inactive:
                beyond.add((model, "inactive"))
                triggers.append(Trigger(model, "inactive"))
        told, self._beyond = self._beyond, beyond
        return [trigger for trigger in triggers if (trigger.model, trigger.kind) not in told]
