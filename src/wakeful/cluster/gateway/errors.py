"""The daemon's errors, as a gateway says them: the same statuses and forms, so that clients need not know who has answered.

The daemon's own tables are with its front ends, of which the cluster knows nothing; a test holds these to them.
"""

import math
from typing import Literal

import grpc
import msgspec

from wakeful.errors import WakefulError

Dialect = Literal["oip", "snooze", "openai"]

STATUS = {"invalid_input": 400, "too_large": 413, "not_found": 404, "overloaded": 429, "unavailable": 503, "execution_failed": 500}
SNOOZE_STATUS = STATUS | {"overloaded": 503}
CODES = {
    "invalid_input": grpc.StatusCode.INVALID_ARGUMENT, "too_large": grpc.StatusCode.RESOURCE_EXHAUSTED, "not_found": grpc.StatusCode.NOT_FOUND,
    "overloaded": grpc.StatusCode.RESOURCE_EXHAUSTED, "unavailable": grpc.StatusCode.UNAVAILABLE, "execution_failed": grpc.StatusCode.INTERNAL,
}
"""What a gateway may have to say, by `WakefulError.code`."""
_LONGEST_WAIT = 3600
_OPENAI_TYPES = {429: "rate_limit_error"}


def dialect_of(path: str) -> Dialect:
    if path.startswith("/openai/") or path in ("/v1/embeddings", "/v1/rerank"):
        return "openai"
    return "snooze" if path.startswith("/v1/") else "oip"


def render(error: WakefulError, dialect: Dialect) -> tuple[int, dict[str, str], bytes]:
    """Status, additional headers and JSON body."""
    status = (SNOOZE_STATUS if dialect == "snooze" else STATUS)[error.code]
    headers = {"content-type": "application/json"}
    if status in (429, 503):
        headers["retry-after"] = str(whole_seconds(error.retry_after))
    if dialect != "openai":
        return status, headers, msgspec.json.encode({"error": error.message})
    kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return status, headers, msgspec.json.encode({"error": {"message": error.message, "type": kind, "param": None, "code": error.code}})


def render_grpc(error: WakefulError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """Code, text and trailing metadata."""
    waits = error.code in ("overloaded", "unavailable")
    return CODES[error.code], error.message, (("retry-after", str(whole_seconds(error.retry_after))),) if waits else ()


def whole_seconds(seconds: float | None) -> int:
    """After which to try again: clients ignore fractions and zero."""
    return 1 if seconds is None or not seconds > 1 else math.ceil(min(seconds, _LONGEST_WAIT))
