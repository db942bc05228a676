"""The head of a response, in bytes."""

from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus


@lru_cache(maxsize=4096)
def json_head(length: int) -> bytes:
    """Of the common answer: 200, a JSON body of `length` bytes, and the connection stays."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % length


def response_head(status: int, headers: Sequence[tuple[str, str]], content_type: str, length: int, connection: str | None) -> bytes:
    """Of any answer. `connection`: the field's value, None where it is left out."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    if status != HTTPStatus.NOT_MODIFIED:  # which is about a body that stays where it is
        lines += [f"content-type: {content_type}", f"content-length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if connection is not None:
        lines.append(f"connection: {connection}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


EVENT_STREAM = "text/event-stream"


def stream_head() -> bytes:
    """Of an answer that has no end: events come as they happen, and no proxy shall keep them back."""
    headers = f"content-type: {EVENT_STREAM}\r\ncache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\nconnection: close"
    return f"HTTP/1.1 200 OK\r\n{headers}\r\n\r\n".encode()
