"""After something failed (a load, a restart, a step of growth): how long until the next try."""

from wakeful.errors import WakefulError

FIRST = 1.0
LONGEST = 64.0


class Backoff:
    """1, 2, 4 ... 64 seconds, again from 1 after a success."""

    __slots__ = ("error", "failures", "retry_at")

    def __init__(self) -> None:
        self.error: WakefulError | None = None
        """Why the last try failed; None after a success."""
        self.failures = 0
        self.retry_at = 0.0

    def failed(self, error: WakefulError, now: float) -> float:
        """A try has failed; return the pause in seconds."""
        pause: float = min(FIRST * 2**self.failures, LONGEST)
        self.failures += 1
        self.error = error
        self.retry_at = now + pause
        return pause

    def left(self, now: float) -> float:
        """Seconds until the next try; 0 when it may be now."""
        return max(self.retry_at - now, 0.0) if self.error is not None else 0.0

    def clear(self) -> None:
        self.error = None
        self.failures = 0
        self.retry_at = 0.0
