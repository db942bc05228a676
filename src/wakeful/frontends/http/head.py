"""A request's head: from bytes to what the server needs to know. A pure function of the bytes, so results are remembered.

A client that keeps its connection sends the same head again and again, differing at most in the content length. One look in a dictionary
takes 0.3 microseconds, parsing 7 for a head of four fields (docs/decisions/01-head-memo.md). The parser, llhttp, alone decides what is valid.
"""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httptools

from wakeful.errors import InvalidInput

REMEMBERED = 1024
LONGEST_REMEMBERED = 2048
_SLASHES = re.compile(r"/{2,}")


@dataclass(slots=True)
class Head:
    method: str
    path: str
    """Decoded, without query, double slashes and trailing slash."""
    query: str
    headers: dict[str, str]
    """Names in lower case; repeated fields joined by commas."""
    content_length: int
    """0 where the body is chunked or absent."""
    chunked: bool
    keep_alive: bool
    old: bool
    """HTTP/1.0: the answer has to say that the connection stays."""
    plain: bool
    """The answer has a body and need not say what becomes of the connection: it stays, as HTTP/1.1 has it."""
    encoded: bool
    """There is a content-encoding."""
    route: Any = None
    """What the router found for method and path."""
    whole: int = 0
    """Bytes of the request if its body is `content_length` bytes as they are; 0 where more has to be done to it."""
    slash: bool = False
    """The path ended in a slash."""


class _Collector:
    """httptools' callbacks."""

    def __init__(self) -> None:
        self.url = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True


def parse_head(data: bytes) -> Head:
    """Parse a whole head, the empty line included; the route is found by others. Raises InvalidInput."""
    collector = _Collector()
    parser = httptools.HttpRequestParser(collector)
    keep_alive = False
    try:
        parser.feed_data(data[:-1])
        keep_alive = parser.should_keep_alive()  # asked before the last byte: a request without a body ends there, and is forgotten
        parser.feed_data(data[-1:])
    except httptools.HttpParserUpgrade:
        pass  # an offer (h2c, websocket) that need not be taken: the request is answered as it stands
    except httptools.HttpParserError as error:
        raise _invalid(error) from None
    if not collector.complete:
        raise _invalid("its head does not end")
    version = parser.get_http_version()
    if version not in ("1.0", "1.1"):
        raise InvalidInput.field("HTTP version", "1.0 or 1.1", version)
    method = parser.get_method().decode("ascii")
    path, slash, query = _path_and_query(collector.url)
    headers = _headers(collector.fields)
    chunked = "transfer-encoding" in headers
    if chunked and (headers["transfer-encoding"].lower() != "chunked" or version == "1.0"):
        raise InvalidInput.field("transfer-encoding", "chunked, and HTTP/1.1", repr(headers["transfer-encoding"]))
    encoded = "content-encoding" in headers
    length = _content_length(headers)
    return Head(
        method,
        path,
        query,
        headers,
        length,
        chunked,
        keep_alive,
        version == "1.0",
        keep_alive and version == "1.1" and method != "HEAD",
        encoded,
        whole=0 if chunked or encoded else len(data) + length,
        slash=slash,
    )


def check_beginning(data: bytes) -> None:
    """Raise InvalidInput when nothing that may follow makes a valid head of this, so that who speaks another protocol hears it at once."""
    try:
        httptools.HttpRequestParser(None).feed_data(data)
    except httptools.HttpParserError as error:
        raise _invalid(error) from None


def _invalid(reason: object) -> InvalidInput:
    return InvalidInput(f"not a valid HTTP request: {reason}")


def _path_and_query(target: bytes) -> tuple[str, bool, str]:
    try:
        url = httptools.parse_url(target)
        path = unquote((url.path or b"/").decode("ascii"), errors="strict")
    except (httptools.HttpParserError, UnicodeDecodeError) as error:
        raise _invalid(error) from None
    return _SLASHES.sub("/", path).rstrip("/") or "/", path.endswith("/"), (url.query or b"").decode("latin-1")


def _headers(fields: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _content_length(headers: dict[str, str]) -> int:
    """llhttp has refused what is no number, several numbers, and a number besides chunks; leading zeros it takes."""
    text = headers.get("content-length", "0")
    if not text.isascii() or not text.isdigit():
        raise InvalidInput.field("content-length", "a number of bytes", repr(text))
    return int(text)
