"""Errors over gRPC: one table, and what goes beside the status as trailing metadata."""

from enum import IntEnum

from wakeful.errors import TooLarge, WakefulError
from wakeful.frontends.wording import Dialect, text_of, whole_seconds


class Code(IntEnum):
    """gRPC's own numbers."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


CODES: dict[str, Code] = {
    "invalid_input": Code.INVALID_ARGUMENT,
    "too_large": Code.RESOURCE_EXHAUSTED,
    "unauthenticated": Code.UNAUTHENTICATED,
    "forbidden": Code.PERMISSION_DENIED,
    "not_found": Code.NOT_FOUND,
    "conflict": Code.FAILED_PRECONDITION,
    "overloaded": Code.RESOURCE_EXHAUSTED,
    "unavailable": Code.UNAVAILABLE,
    "out_of_memory": Code.RESOURCE_EXHAUSTED,
    "timeout": Code.DEADLINE_EXCEEDED,
    "execution_failed": Code.INTERNAL,
}
"""In every dialect: SnoozeML's client retries RESOURCE_EXHAUSTED, and UNAVAILABLE only while a model loads."""

LONGEST_TEXT = 1000
"""Bytes: a status travels as metadata, of which clients take 8 KiB, and each byte may become three."""

Metadata = tuple[tuple[str, str], ...]


def render(error: Exception, dialect: Dialect) -> tuple[Code, str, Metadata]:
    """Code, text and trailing metadata. What is not a WakefulError is a fault of ours, and its text is nobody's business."""
    if not isinstance(error, WakefulError):
        return Code.INTERNAL, "internal error", ()
    code, metadata = CODES[error.code], Metadata()
    if code in (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE) and not isinstance(error, TooLarge):
        metadata += (("retry-after", str(whole_seconds(error.retry_after))),)
    if error.unstarted:
        metadata += (("x-wakeful-unstarted", "1"),)
    return code, _short(text_of(error, dialect)), metadata


def _short(text: str) -> str:
    encoded = text.encode()
    return text if len(encoded) <= LONGEST_TEXT else encoded[:LONGEST_TEXT].decode(errors="ignore") + "..."
