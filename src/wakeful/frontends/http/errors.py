"""Errors over HTTP: one table for each dialect, and the few errors that only HTTP knows."""

import re
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from wakeful.errors import ExecutionFailed, WakefulError
from wakeful.frontends.wording import Dialect, text_of, whole_seconds

Headers = list[tuple[str, str]]

OIP_STATUS: dict[str, int] = {
    "invalid_input": 400,
    "too_large": 413,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "overloaded": 429,
    "unavailable": 503,
    "out_of_memory": 503,
    "timeout": 504,
    "execution_failed": 500,
}

SNOOZE_STATUS: dict[str, int] = OIP_STATUS | {"overloaded": 503}
"""SnoozeML's client retries 503 alone."""

STATUS: dict[Dialect, dict[str, int]] = {"oip": OIP_STATUS, "snooze": SNOOZE_STATUS, "openai": OIP_STATUS, "wakeful": OIP_STATUS}

OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""Of other statuses: invalid_request_error below 500, else server_error."""
_FIELD = re.compile(r"(\w+(?:\[\d+\]|\.\w+)*): ")
"""How the text of an invalid input begins."""


class HttpError(WakefulError):
    """An error of the transport, the same in every dialect."""

    status: ClassVar[int]

    def __init__(self, message: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.headers = headers


class MethodNotAllowed(HttpError):
    code = "method_not_allowed"
    status = 405

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"method {method} is not allowed here", [("allow", ", ".join(allowed))])


class UnsupportedMedia(HttpError):
    """A content type or encoding that is not understood. `encodings`: those that are."""

    code = "unsupported_media"
    status = 415

    def __init__(self, message: str, encodings: Sequence[str] = ()) -> None:
        super().__init__(message, [("accept-encoding", ", ".join(encodings))] if encodings else [])


class HeadersTooLarge(HttpError):
    code = "headers_too_large"
    status = 431


class RequestTimeout(HttpError):
    """The request itself did not arrive in time; TimedOut is about its answer."""

    code = "request_timeout"
    status = 408


def render(error: Exception, dialect: Dialect) -> tuple[int, Headers, bytes]:
    """Status, additional headers and JSON body. What is not a WakefulError is a fault of ours, and its text is nobody's business."""
    if not isinstance(error, WakefulError):
        return 500, [], _body(ExecutionFailed("internal error"), 500, dialect)
    headers: Headers = []
    if isinstance(error, HttpError):
        status = error.status
        headers += error.headers
    else:
        status = STATUS[dialect][error.code]
    if status in (429, 503):
        headers.append(("retry-after", str(whole_seconds(error.retry_after))))
    if status == 401:
        headers.append(("www-authenticate", "Bearer"))
    if error.unstarted:
        headers.append(("x-wakeful-unstarted", "1"))
    return status, headers, _body(error, status, dialect)


def _body(error: WakefulError, status: int, dialect: Dialect) -> bytes:
    text = text_of(error, dialect)
    if dialect == "wakeful":
        return msgspec.json.encode({"error": text, "code": error.code})
    if dialect != "openai":
        return msgspec.json.encode({"error": text})
    kind = OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    field = _FIELD.match(text) if kind == "invalid_request_error" else None
    return msgspec.json.encode({"error": {"message": text, "type": kind, "param": field and field[1], "code": error.code}})
