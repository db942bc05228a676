"""Measures what `replicas.scaling` judges: did the last replica that was added bring throughput?"""

from collections.abc import Sequence
from typing import NamedTuple

from wakeful.clock import monotonic
from wakeful.config.settings import ReplicaSettings
from wakeful.replicas import scaling
from wakeful.replicas.scaling import Hold, ScaleLimits, ScaleView, Step

LOOK_SECONDS = 0.02
"""Under overload every arrival asks; the answer is renewed this often."""
JUDGE_SECONDS = 1.0
"""Pressure that a step must have seen before it is judged."""
FORGET_SECONDS = 30.0
"""Pause of the pressure after which everything begins anew."""
SILENT: frozenset[str] = frozenset({"judging"})
"""Causes of holding that pass by themselves and are not worth an event."""


class Growing(NamedTuple):
    more: int
    reason: str
    hold: str | None
    """Why nothing is added, when that is news."""


NOTHING = Growing(0, "", None)


class Growth:
    """One model's steps. Throughput counts only while the queues are over the threshold: less work is no sign of less capacity."""

    def __init__(self, settings: ReplicaSettings) -> None:
        self._limits = ScaleLimits(settings.queue_threshold, settings.max_replicas, settings.min_replicas, settings.fixed)
        self.next_look = 0.0
        """Asking before this time is of no use."""
        self._last_pressure = 0.0
        self._since = 0.0
        self._rows_then = 0.0
        self._before: float | None = None
        self._held = ""

    def failed(self, now: float) -> None:
        """A step could not be carried out: leave the queues alone for a while."""
        self.next_look = now + 1.0

    def decide(self, queues: Sequence[int], loaded: int, max_loaded: int | None, *, on_cpu: bool, rows_done: float, capacity: float) -> Growing:
        """`rows_done`: rows run so far; `capacity`: rows per second that one replica can run, as far as known."""
        now = monotonic()
        self.next_look = now + LOOK_SECONDS
        if now - self._last_pressure > FORGET_SECONDS:
            self._before, self._held = None, ""
            self._restart(now, rows_done)
        self._last_pressure = now
        if not all(queues):  # one is starting or has just started: its work is still to come
            self._restart(now, rows_done)
        window = now - self._since
        rate = (rows_done - self._rows_then) / window if window > 0 else 0.0
        limits = ScaleLimits(
            self._limits.queue_threshold, self._limits.max_replicas, self._limits.min_replicas, self._limits.fixed, max_loaded
        )
        decision = scaling.decide(ScaleView(queues, loaded, on_cpu, self._before, rate, window >= JUDGE_SECONDS), limits)
        if isinstance(decision, Step):
            self._before = rate if window >= JUDGE_SECONDS else capacity * len(queues)
            self._restart(now, rows_done)
            self._held = ""
            return Growing(decision.count, decision.reason, None)
        if isinstance(decision, Hold) and decision.cause != self._held:
            self._held = decision.cause
            return Growing(0, "", None if decision.cause in SILENT else decision.reason)
        return NOTHING

    def _restart(self, now: float, rows_done: float) -> None:
        self._since, self._rows_then = now, rows_done
