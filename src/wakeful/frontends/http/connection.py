"""One client's connection: bytes in, requests out to their handlers, answers back in order. One request at a time; what a client sends ahead waits.

A handler is a plain function `(connection, head, body) -> None` that answers now or later through `connection.respond`. No task and no coroutine is
made for an inference.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from wakeful.clock import monotonic
from wakeful.errors import InvalidInput, TooLarge, WakefulError
from wakeful.frontends.http.errors import Dialect, HeadersTooLarge, UnsupportedMedia, render
from wakeful.frontends.http.head import LONGEST_REMEMBERED, REMEMBERED, ChunkedBody, Head, parse_head
from wakeful.telemetry.units import show_bytes
from wakeful.tensors import Buffer

log = logging.getLogger(__name__)

HEAD_LIMIT = 32 * 1024
LARGE_BODY = 64 * 1024
"""From here a body is received straight into its own buffer instead of through the loop's."""
AHEAD_LIMIT = 64 * 1024
"""Bytes that a client may send ahead while its request is answered, before the connection is no longer read."""
LINGER_SECONDS = 1.0
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ENCODINGS = ("gzip", "deflate")
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"

Handler = Callable[["Connection", Head, Buffer], None]


@dataclass(frozen=True, slots=True)
class Route:
    """What the router found: the handler, and the dialect in which errors are told."""

    handler: Handler
    dialect: Dialect
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass
class Shared:
    """What all connections of a server have in common."""

    find: Callable[[str, str], Route]
    """Route of a method and a path. Raises NotFound or MethodNotAllowed."""
    max_body: int
    connections: "set[Connection]" = field(default_factory=set)
    heads: dict[bytes, Head] = field(default_factory=dict)
    closing: bool = False
    """True when the daemon stops: every answer closes its connection."""


class Connection(asyncio.Protocol):
    __slots__ = (
        "_buffer", "_chunks", "_discarding", "_head", "_paused", "_reading", "_shared", "_transport", "_want_close", "_writable", "since",
        "waiter",
    )

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._transport: Any = None
        self._buffer = b""
        """Received and not yet understood."""
        self._head: Head | None = None
        """Of the request that is being received or answered."""
        self._chunks: ChunkedBody | None = None
        self._reading = False
        """True while the body of `_head` is on its way."""
        self._want_close = False
        self._discarding = False
        """True when the answer is out and the rest of the body is only read so that the client gets to see the answer."""
        self._paused = False
        self._writable = True
        self.since = monotonic()
        """Last time that a request began or ended here."""
        self.waiter: Any = None
        """Whoever has to know when the client leaves: an object with an attribute `left`."""

    # ── asyncio.Protocol ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._shared.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.connections.discard(self)
        self._want_close = True
        if self.waiter is not None:
            self.waiter.left = True
            self.waiter = None

    def eof_received(self) -> bool:
        """The client sends no more; it may still wait for its answer."""
        self._want_close = True
        return self._head is not None and not self._reading

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._advance()

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        self._buffer = self._buffer + data if self._buffer else data
        if self._head is None:
            self._advance()
        elif self._chunks is not None and self._reading:
            self._feed_chunks()
        elif self._reading:
            self._take_body()
        elif len(self._buffer) > AHEAD_LIMIT and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    # ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _advance(self) -> None:
        """Begin with the next request if it is there and the one before has been answered."""
        while self._head is None and self._buffer and self._writable and not self._transport.is_closing():
            buffer = self._buffer
            end = buffer.find(b"\r\n\r\n") + 4
            if end < 4:
                if len(buffer) > HEAD_LIMIT:
                    self._fail_early(HeadersTooLarge(f"the request's head is over {show_bytes(HEAD_LIMIT)}"))
                elif buffer in (b"\r\n", b"\n"):  # some old clients end a body with an empty line of their own
                    self._buffer = b""
                return
            data = buffer[:end]
            head = self._shared.heads.get(data)
            if head is None:
                try:
                    head = self._learn_head(data.lstrip(b"\r\n"))
                except InvalidInput as error:
                    self._fail_early(error)
                    return
            self._head = head
            length = head.content_length
            if len(buffer) - end == length and not head.chunked:  # the common case: one request, wholly there
                self._buffer = b""
                self._handle(buffer[end:])
            else:
                self._buffer = buffer[end:]
                self._begin(head)

    def _learn_head(self, data: bytes) -> Head:
        if len(data) > HEAD_LIMIT:
            raise InvalidInput(f"the request's head is over {show_bytes(HEAD_LIMIT)}")
        head = parse_head(data)
        try:
            route = self._shared.find(head.method, head.path)
        except WakefulError as error:
            route = Route(refuse_with(error), "oip")
        head = head._replace(route=route)
        heads = self._shared.heads
        if len(data) <= LONGEST_REMEMBERED:
            if len(heads) >= REMEMBERED:
                heads.clear()
            heads[data] = head
        return head

    def _begin(self, head: Head) -> None:
        """The body is not there yet, or more than it."""
        if head.content_length > self._shared.max_body:
            self._reading = True
            limit = show_bytes(self._shared.max_body)
            self.fail(TooLarge(f"the body has {show_bytes(head.content_length)}, the limit is {limit} (max_body)"))
            return
        if head.headers.get("expect", "").lower() == "100-continue" and not self._buffer:
            self._transport.write(CONTINUE)
        self._reading = True
        if head.chunked:
            self._chunks = ChunkedBody(self._shared.max_body)
            self._feed_chunks()
        else:
            self._take_body()

    def _take_body(self) -> None:
        assert self._head is not None
        length = self._head.content_length
        if len(self._buffer) >= length:
            body = self._buffer if len(self._buffer) == length else self._buffer[:length]
            self._buffer = self._buffer[length:]
            self._handle(body)
        elif length >= LARGE_BODY:
            body, self._buffer = self._buffer, b""
            receiver = LargeBody(self, self._transport, length, body)
            self._switch(receiver)

    def _switch(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.pause_reading()  # the loop asks for the kind of protocol when it begins to read
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()

    def large_body_received(self, body: Buffer) -> None:
        self._switch(self)
        self._handle(body)

    def _feed_chunks(self) -> None:
        assert self._chunks is not None
        data, self._buffer = self._buffer, b""
        try:
            rest = self._chunks.feed(data)
        except InvalidInput as error:
            self.fail(error)
            return
        if self._chunks.too_large:
            self.fail(TooLarge(f"the body is over the limit of {show_bytes(self._shared.max_body)} (max_body)"))
        elif rest is not None:
            body = b"".join(self._chunks.parts)
            self._chunks = None
            self._buffer = rest
            self._handle(body)

    def _handle(self, body: Buffer) -> None:
        self._reading = False
        head = self._head
        assert head is not None
        try:
            if head.encoded:
                body = inflate(body, head.headers["content-encoding"], self._shared.max_body)
            head.route.handler(self, head, body)
        except Exception as error:
            self.fail(error)

    # ── answering ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def respond_json(self, body: bytes) -> None:
        """The common answer: 200 and a JSON body."""
        head = self._head
        if head is None or head.old or self._want_close or self._shared.closing:
            self.respond(200, (), body)
            return
        self._transport.write(JSON_HEAD % len(body) + body)
        self._done(head.keep_alive)

    def respond(
        self, status: int, headers: Sequence[tuple[str, str]], body: Buffer, content_type: str = "application/json"
    ) -> None:
        """Answer the current request. A client that has left is not an error."""
        head = self._head
        if self._transport is None or self._transport.is_closing():
            return
        keep = head is not None and head.keep_alive and not self._want_close and not self._shared.closing
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"content-type: {content_type}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if not keep:
            lines.append("connection: close")
        elif head is not None and head.old:
            lines.append("connection: keep-alive")
        self._transport.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
        if body and not (head is not None and head.method == "HEAD"):
            self._transport.write(body)
        self._done(keep)

    def fail(self, error: Exception) -> None:
        """Answer with an error in the dialect of the route."""
        if not isinstance(error, WakefulError):
            log.error("a request could not be handled", exc_info=error)
        head = self._head
        if self._reading or self._chunks is not None:  # the rest of the body would be read as the next request
            self._want_close = self._discarding = True
            self._buffer = b""
        self._reading = False
        route = head.route if head is not None else None
        dialect: Dialect = route.dialect if route is not None else "oip"
        status, headers, body = render(error, dialect)
        self.respond(status, headers, body)

    def _fail_early(self, error: WakefulError) -> None:
        """The head itself is wrong, so what follows cannot be understood either."""
        self._want_close = True
        self._buffer = b""
        self.fail(error)

    def _done(self, keep: bool) -> None:
        self.waiter = None
        self._head = None
        self._chunks = None
        self.since = monotonic()
        if not keep:
            self._want_close = True
            self._part()
            return
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        if self._buffer:
            asyncio.get_running_loop().call_soon(self._advance)  # not at once: answers would nest

    def _part(self) -> None:
        """Close; but closing over unread bytes would reset the connection, and the client might never see its answer."""
        if self._discarding and self._transport.can_write_eof():
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.close)
        else:
            self._transport.close()

    # ── the server's care ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def busy(self) -> bool:
        """A request has been received whole and is not answered."""
        return self._head is not None and not self._reading

    @property
    def receiving(self) -> bool:
        return self._reading or bool(self._buffer)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class LargeBody(asyncio.BufferedProtocol):
    """Receives the rest of one large body into a buffer of its size; memory is touched only as bytes arrive."""

    def __init__(self, connection: Connection, transport: Any, length: int, first: bytes) -> None:
        self._connection = connection
        self._transport = transport
        self._body = bytearray(length)
        self._view = memoryview(self._body)
        self._view[: len(first)] = first
        self._at = len(first)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._at :]

    def buffer_updated(self, nbytes: int) -> None:
        self._at += nbytes
        if self._at == len(self._body):
            self._connection.large_body_received(self._view)

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


def refuse_with(error: WakefulError) -> Handler:
    """The handler of a path that leads nowhere."""

    def handler(connection: Connection, head: Head, body: Buffer) -> None:
        connection.fail(error)

    return handler


def inflate(body: Buffer, encoding: str, limit: int) -> bytes:
    """Undo gzip or deflate; never more than `limit` bytes. Raises UnsupportedMedia, InvalidInput or TooLarge."""
    name = encoding.strip().lower()
    if name == "identity":
        return bytes(body)
    if name not in ENCODINGS:
        raise UnsupportedMedia(f"content-encoding {encoding!r} is not supported, only gzip and deflate", ENCODINGS)
    inflated = bytearray()
    rest = bytes(body)
    try:
        while rest:  # gzip allows several members
            machine = zlib.decompressobj(zlib.MAX_WBITS | 32)  # tells gzip and zlib apart by their headers
            inflated += machine.decompress(rest, limit + 1 - len(inflated))
            if len(inflated) > limit:
                raise TooLarge(f"the inflated body is over the limit of {show_bytes(limit)} (max_body)")
            if not machine.eof:
                raise InvalidInput(f"the {name} body is not complete")
            rest = machine.unused_data
    except zlib.error as error:
        raise InvalidInput(f"the body is not valid {name}: {error}") from None
    return bytes(inflated)
