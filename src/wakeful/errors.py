"""What can go wrong with a request, independent of any transport.

    WakefulError
    ├── InvalidInput       the caller sent something that cannot be right
    ├── TooLarge           over a size limit
    ├── Unauthenticated    no or a bad credential
    ├── Forbidden          the role does not allow it
    ├── NotFound           no such model, version or route
    ├── Conflict           what the server has already does not allow it
    ├── Overloaded         the queue is full, or the deadline cannot be met
    ├── Unavailable        load failed or backing off, draining
    ├── OutOfMemory        after a bounded number of tries
    ├── TimedOut           the caller's or the model's deadline has passed
    └── ExecutionFailed    the model itself failed

Every front end has one table from `code` to its own status; a test holds each table complete.
"""

from typing import ClassVar

SHOWN = 120
"""Longest piece of what came that is shown to whoever sent it."""


class WakefulError(Exception):
    """Base of all errors that reach a caller. `message` is one or two sentences, without a stack trace."""

    code: ClassVar[str] = "execution_failed"

    def __init__(self, message: str, *, retry_after: float | None = None, unstarted: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        """Seconds after which another try makes sense, if that is known."""
        self.unstarted = unstarted
        """True when the work surely did not start, so that a proxy may try elsewhere."""

    def of_begun(self) -> "WakefulError":
        """The same for whoever's work may have started: nobody may try it elsewhere unasked."""
        return type(self)(self.message, retry_after=self.retry_after) if self.unstarted else self


class InvalidInput(WakefulError):
    """A field of the request is wrong: which one, what was expected and what came."""

    code = "invalid_input"

    @classmethod
    def field(cls, name: str, expected: str, got: object) -> "InvalidInput":
        text = str(got)
        return cls(f"{name}: expected {expected}, got {text if len(text) <= SHOWN else text[:SHOWN] + '...'}")


class TooLarge(WakefulError):
    code = "too_large"


class Unauthenticated(WakefulError):
    code = "unauthenticated"


class Forbidden(WakefulError):
    code = "forbidden"


class NotFound(WakefulError):
    code = "not_found"


class Conflict(WakefulError):
    code = "conflict"


class Overloaded(WakefulError):
    code = "overloaded"


class Unavailable(WakefulError):
    code = "unavailable"


class OutOfMemory(WakefulError):
    code = "out_of_memory"


class TimedOut(WakefulError):
    code = "timeout"


class ExecutionFailed(WakefulError):
    code = "execution_failed"


ALL_ERRORS: tuple[type[WakefulError], ...] = (
    InvalidInput, TooLarge, Unauthenticated, Forbidden, NotFound, Conflict, Overloaded, Unavailable, OutOfMemory, TimedOut, ExecutionFailed,
)
BY_CODE: dict[str, type[WakefulError]] = {error.code: error for error in ALL_ERRORS}
