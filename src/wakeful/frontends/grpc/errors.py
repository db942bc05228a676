"""Errors over gRPC: one table, and what goes beside the status as trailing metadata."""

from wakeful.errors import TooLarge, WakefulError
from wakeful.frontends.wording import Dialect, text_of, whole_seconds

OK = 0
INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 3, 4, 5
PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 7, 8, 9
INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 13, 14, 16

CODES: dict[str, int] = {
    "invalid_input": INVALID_ARGUMENT,
    "too_large": RESOURCE_EXHAUSTED,
    "unauthenticated": UNAUTHENTICATED,
    "forbidden": PERMISSION_DENIED,
    "not_found": NOT_FOUND,
    "conflict": FAILED_PRECONDITION,
    "overloaded": RESOURCE_EXHAUSTED,
    "unavailable": UNAVAILABLE,
    "out_of_memory": RESOURCE_EXHAUSTED,
    "timeout": DEADLINE_EXCEEDED,
    "execution_failed": INTERNAL,
}
"""In every dialect: SnoozeML's client retries RESOURCE_EXHAUSTED, and UNAVAILABLE only while a model loads."""

LONGEST_TEXT = 1000
"""Bytes: a status travels as metadata, of which clients take 8 KiB, and each byte may become three."""

Metadata = tuple[tuple[str, str], ...]


def render(error: Exception, dialect: Dialect) -> tuple[int, str, Metadata]:
    """Code, text and trailing metadata. What is not a WakefulError is a fault of ours, and its text is nobody's business."""
    if not isinstance(error, WakefulError):
        return INTERNAL, "internal error", ()
    code, metadata = CODES[error.code], Metadata()
    if code in (RESOURCE_EXHAUSTED, UNAVAILABLE) and not isinstance(error, TooLarge):
        metadata += (("retry-after", str(whole_seconds(error.retry_after))),)
    if error.unstarted:
        metadata += (("x-wakeful-unstarted", "1"),)
    return code, _short(text_of(error, dialect)), metadata


def _short(text: str) -> str:
    encoded = text.encode()
    return text if len(encoded) <= LONGEST_TEXT else encoded[:LONGEST_TEXT].decode(errors="ignore") + "..."
