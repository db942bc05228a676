"""One client's connection: bytes in, requests out to their handlers, answers back in order. One request at a time; what a client sends ahead waits.

A handler is a plain function `(connection, head, body) -> None` that answers now or later through `connection.respond`. No task and no coroutine is
made for an inference.
"""

import asyncio
import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from wakeful.errors import InvalidInput, TooLarge, Unavailable, WakefulError
from wakeful.frontends.http.chunked_body import ChunkedBody
from wakeful.frontends.http.elsewhere import elsewhere
from wakeful.frontends.http.encoding import inflate
from wakeful.frontends.http.errors import HeadersTooLarge, RequestTimeout, UnsupportedMedia, render
from wakeful.frontends.http.head import LONGEST_REMEMBERED, REMEMBERED, Head, check_beginning, parse_head
from wakeful.frontends.http.large_body import LargeBody
from wakeful.frontends.http.line import Line
from wakeful.frontends.http.patience import Patience, Watch
from wakeful.frontends.http.response import json_head, response_head
from wakeful.frontends.http.streamed_body import Sink, StreamedBody
from wakeful.frontends.wording import Dialect
from wakeful.telemetry.units import show_bytes
from wakeful.tensors import Buffer

log = logging.getLogger(__name__)

LARGE_BODY = 64 * 1024
"""From here a body is received straight into its own buffer instead of through the loop's."""
AHEAD_LIMIT = 64 * 1024
"""Bytes that a client may send ahead while its request is answered, before the connection is no longer read. No head may be longer."""
INFLATED_HERE = 4 * 1024
"""Compressed bytes, up to a thousand times as many inflated, that do not hold up the loop for long."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

Handler = Callable[["Connection", Head, Buffer], None]


class Route(NamedTuple):
    """What the router found: the handler, and the dialect in which errors are told."""

    handler: Handler
    dialect: Dialect
    parameters: Mapping[str, str] = MappingProxyType({})
    refusal: WakefulError | None = None
    """Why it leads nowhere: told before a body is waited for."""
    lasting: bool = True
    """False: with the same head another answer may be right the next time."""
    streams: bool = False
    """True: the handler is called before the body has come, and says by `Connection.stream` where that goes."""


@dataclass
class Shared:
    """What all connections of a server have in common."""

    find: Callable[[str, str, Mapping[str, str]], Route]
    """Route of a method, a path and headers, be it one that refuses."""
    max_body: int
    patience: Patience = field(default_factory=Patience)
    max_header: int = 32 * 1024
    max_upload: int = sys.maxsize
    """Bytes of a body that is streamed."""
    most_connections: int = sys.maxsize
    """Further ones are refused."""
    connections: "set[Connection]" = field(default_factory=set)
    heads: dict[bytes, Head] = field(default_factory=dict)
    closing: bool = False
    """True when the daemon stops: every answer closes its connection."""


def refusing(error: WakefulError, dialect: Dialect, *, lasting: bool = True) -> Route:
    """A route that leads nowhere."""

    def handler(connection: "Connection", _head: Head, _body: Buffer) -> None:
        connection.fail(error)

    return Route(handler, dialect, refusal=error, lasting=lasting)


_NOWHERE = refusing(InvalidInput("not a valid HTTP request"), "oip")
NOT_UNDERSTOOD = Head(
    "", "", "", {}, content_length=0, chunked=False, keep_alive=False, old=False, plain=False, encoded=False, route=_NOWHERE
)
"""Stands for a request whose head is wrong, or is not there, while it is refused."""


class Connection(Line):
    __slots__ = ("_chunks", "_end", "_head", "_heads", "_reading", "_shared", "_sink", "_stream", "_watch", "waiter")

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self._shared = shared
        self._heads = shared.heads
        self._end = 0
        """Length of the latest head."""
        self._head: Head | None = None
        """Of the request that is being received or answered."""
        self._chunks: ChunkedBody | None = None
        """The body under way, if it is chunked."""
        self._sink: Sink | None = None
        self._stream: StreamedBody | None = None
        """The body under way, if it is not collected: where it goes, and how."""
        self._reading = False
        """True while the body of `_head` is on its way."""
        self._watch = Watch()
        self.waiter: Any = None
        """Whoever has to know when the client leaves: an object with an attribute `left`."""

    # ── asyncio.Protocol ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._shared.connections.add(self)
        self._want_close = self._shared.closing
        if len(self._shared.connections) > self._shared.most_connections:
            self._fail_early(Unavailable(f"{self._shared.most_connections} connections are open, which is the limit (max_connections)"))
            self._transport.close()  # at once, even if that costs the client its answer

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._shared.connections.discard(self)
        self._abandon_stream()
        if self.waiter is not None:
            self.waiter.left = True
            self.waiter = None

    def eof_received(self) -> bool:
        """True keeps the connection open for the answers."""
        self._ended = True
        self._advance()
        if self._sealed:  # TLS has no half-closed connections
            return False
        if self.busy:
            patience = self._shared.patience.probing
            asyncio.get_running_loop().call_later(patience, self._probe, 2 * patience)
            return True
        return bool(self._buffer) and not self._writable

    def _probe(self, patience: float) -> None:
        """A client that sends no more has left, or only closed its half. An interim answer tells: one that has left resets the connection, so
        that the next write fails."""
        if self._head is not None and not self._head.old and not self._transport.is_closing():
            self._transport.write(CONTINUE)
            asyncio.get_running_loop().call_later(patience, self._probe, 2 * patience)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._advance()

    def data_received(self, data: bytes) -> None:
        if self._head is None and not self._buffer and self._writable and not self._discarding:
            head = self._heads.get(data[: self._end])
            if head is not None and head.whole == len(data):  # the common case: the same head again, and one request, wholly there
                self._head = head
                try:
                    head.route.handler(self, head, data[self._end :])
                except Exception as error:  # noqa: BLE001 - as in _handle
                    self.fail(error)
                return
        self._keep(data)

    def _keep(self, data: bytes) -> None:
        if self._discarding:
            return
        self._buffer = self._buffer + data if self._buffer else data
        if self._reading:
            self._read_body()
        else:
            self._advance()
            if len(self._buffer) > AHEAD_LIMIT and not self._reading:  # what has been sent ahead is enough for now
                self._pause_reading()

    # ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _advance(self) -> None:
        """Begin with the next request if it is there, and the one before has been answered and its answer taken."""
        while self._head is None and self._buffer and self._writable:
            buffer = self._buffer
            end = self._end
            head = self._heads.get(buffer[:end])
            if head is None:
                self._end = end = buffer.find(b"\r\n\r\n") + 4
                head = self._heads.get(buffer[:end])
            if head is None:
                if buffer[0] in b"\r\n":  # some clients end a body with an empty line of their own
                    self._buffer = buffer.lstrip(b"\r\n")
                    if self._ended and not self._buffer:
                        self.close()
                    continue
                try:
                    head = self._learn_head(buffer, end)
                except WakefulError as error:
                    self._fail_early(error)
                    return
                if head is None:
                    if self._ended:
                        self.close()
                    return
            self._head = head
            self._buffer = buffer[end:]
            self._begin(head)

    def _learn_head(self, buffer: bytes, end: int) -> Head | None:
        """A head that was not sent before in the same words. None: it is not there yet."""
        if (len(buffer) if end < 4 else end) > (limit := self._shared.max_header):
            raise HeadersTooLarge(f"the request's head is over {show_bytes(limit)} (max_header)")
        if end < 4:
            check_beginning(buffer)
            return None
        data = buffer[:end]
        head = parse_head(data)
        head.route = self._shared.find(head.method, head.path, head.headers)
        if head.content_length > self._shared.max_body or head.route.streams:
            head.whole = 0  # to be refused before it is handled, or handled before it is there
        heads = self._heads
        if head.route.lasting and len(data) <= LONGEST_REMEMBERED:
            if len(heads) >= REMEMBERED:
                heads.clear()
            heads[data] = head
        return head

    def _begin(self, head: Head) -> None:
        """The body is not there yet, or more than it."""
        self._reading = True
        shared = self._shared
        limit, name = (shared.max_upload, "max_upload") if head.route.streams else (shared.max_body, "max_body")
        if head.content_length > limit:
            self.fail(TooLarge(f"the body has {show_bytes(head.content_length)}, the limit is {show_bytes(limit)} ({name})"))
            return
        if head.route.refusal is not None and (head.chunked or head.content_length > len(self._buffer)):
            self.fail(head.route.refusal)
            return
        chunks = ChunkedBody(limit, name) if head.chunked else None
        if not head.route.streams:
            self._chunks = chunks
        elif not self._begin_stream(head, chunks):
            return
        if not self._buffer and not head.old and head.headers.get("expect", "").lower() == "100-continue":
            self._transport.write(CONTINUE)
        self._read_body()
        if self._reading:
            self._resume_reading()
            if self._ended:
                self.close()

    # ── streaming ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def stream(self, sink: Sink) -> None:
        """Called by the handler of a route that streams: the body goes there, and the sink answers."""
        self._sink = sink

    def _begin_stream(self, head: Head, chunks: ChunkedBody | None) -> bool:
        """False if the handler did not want the body."""
        try:
            if head.encoded:
                raise UnsupportedMedia("an upload is not compressed: send it without content-encoding", ["identity"])
            head.route.handler(self, head, b"")
        except Exception as error:  # noqa: BLE001 - as in _handle
            self.fail(error)
            return False
        sink, self._sink = self._sink, None
        assert sink is not None
        self._stream = StreamedBody(sink, chunks or head.content_length, self._hold_back, partial(self._stream_over, sink))
        return True

    def _stream_over(self, sink: Sink, error: Exception | None) -> None:
        if error is None:
            self._stream = None
            try:
                sink.complete()
            except Exception as fault:  # noqa: BLE001 - as in _handle
                self.fail(fault)
        else:
            self.fail(error)

    def _abandon_stream(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.abandon()

    # ── collecting ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_body(self) -> None:
        head, stream, chunks = self._head, self._stream, self._chunks
        assert head is not None
        if stream is not None:
            self._feed(stream.feed)
            stream.pass_on()
            return
        if chunks is not None:
            if self._feed(chunks.feed):
                self._chunks = None
                self._handle(head, chunks.body)
            return
        length = head.content_length
        if len(self._buffer) >= length:
            body = self._buffer if len(self._buffer) == length else self._buffer[:length]
            self._buffer = self._buffer[length:]
            self._handle(head, body)
        elif length >= LARGE_BODY:
            body, self._buffer = self._buffer, b""
            self._hand_over_to(LargeBody(self, self._large_body_received, length, body))

    def _feed(self, feed: Callable[[bytes], bytes | None]) -> bool:
        """Let the body take what is its part of what has come. True once it is whole."""
        data, self._buffer = self._buffer, b""
        try:
            rest = feed(data)
        except WakefulError as error:
            self.fail(error)
            return False
        if rest is None:
            return False
        self._buffer = rest
        self._reading = False
        return True

    def _large_body_received(self, body: Buffer) -> None:
        self._hand_over_to(self)
        assert self._head is not None
        self._handle(self._head, body)

    def _handle(self, head: Head, body: Buffer) -> None:
        self._reading = False
        try:
            if head.encoded and head.route.refusal is None:
                self._inflate(head, body)
            else:
                head.route.handler(self, head, body)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client hears of it, and the log if it is a fault of ours
            self.fail(error)

    def _inflate(self, head: Head, body: Buffer) -> None:
        work = partial(inflate, body, head.headers["content-encoding"], self._shared.max_body)

        def handle(inflated: Callable[[], Buffer]) -> None:
            head.route.handler(self, head, inflated())

        if len(body) > INFLATED_HERE:
            elsewhere(work, handle, self.go_on)
        else:
            handle(work)

    def go_on(self, handle: Callable[[], None]) -> None:
        """Handle the current request after all, unless its client has left."""
        try:
            if not self._transport.is_closing():
                handle()
        except Exception as error:  # noqa: BLE001 - as in _handle
            self.fail(error)
            error.__traceback__ = None  # its frames hold the body, and a future that holds the error: only the collector would find them

    # ── answering ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def respond_json(self, body: bytes) -> None:
        """The common answer: 200 and a JSON body."""
        head = self._head
        if head is None or not head.plain or self._want_close or self._sealed:
            self.respond(200, (), body)
            return
        self._transport.write(json_head(len(body)) + body)
        self._done(True)

    def respond(
        self, status: int, headers: Sequence[tuple[str, str]], body: Buffer, content_type: str = "application/json"
    ) -> None:
        """Answer the current request. Nothing happens where it has been answered, or where the client has left."""
        head = self._head
        if head is None or self._transport.is_closing():
            return
        keep = head.keep_alive and not self._want_close
        said = ("keep-alive" if head.old else None) if keep else "close"
        self._transport.write(response_head(status, headers, content_type, len(body), said))
        if body and head.method != "HEAD":
            self._send(body)
        self._done(keep)

    def fail(self, error: Exception) -> None:
        """Answer with an error in the dialect of the route."""
        if not isinstance(error, WakefulError):
            log.error("a request could not be handled", exc_info=error)
        head = self._head
        if head is None:
            return
        self._abandon_stream()
        if self._reading:  # the rest of the body would be read as the next request
            self._reading = False
            self._chunks = None
            self._want_close = self._discarding = True
        self.respond(*render(error, head.route.dialect))

    def _fail_early(self, error: WakefulError) -> None:
        """The head is wrong or the request not whole, so what follows cannot be understood either."""
        if self._head is None:
            self._head = NOT_UNDERSTOOD
        self._reading = True
        self.fail(error)

    def _done(self, keep: bool) -> None:
        self.waiter = None
        self._head = None
        self._watch.seen = None
        if not keep:
            self._part(self._shared.patience.leaving)
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._advance)  # not at once: answers would nest
            if len(self._buffer) <= AHEAD_LIMIT:
                self._resume_reading()
        elif self._ended:
            self.close()
        elif self._paused:
            self._resume_reading()

    # ── the server's care ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def busy(self) -> bool:
        """A request has been received whole and is not answered. An answer without end keeps nobody busy."""
        return self._head is not None and not self._reading and not self._endless

    @property
    def receiving(self) -> bool:
        return self._reading or bool(self._buffer)

    @property
    def occupied(self) -> bool:
        """A request is on its way in, not answered, or its answer is on its way out.

        TLS does not show its last bytes until the connection is closed."""
        if self._endless:
            return False
        return self.busy or self.receiving or self.unsent > 0 or (self._sealed and self._transport.is_closing())

    def look_after(self, now: float) -> None:
        """Called now and then: give up on a client that does not do what it has to do next."""
        patience = self._shared.patience
        if self.busy:
            state, limit = ("busy", 0), math.inf
        elif self.unsent:
            state, limit = ("unsent", self.unsent), patience.reading
        elif self._endless:
            state, limit = ("endless", 0), math.inf
        elif self.receiving:
            state, limit = ("receiving", self._stream.received if self._stream is not None else 0), patience.receiving
        else:
            state, limit = ("idle", 0), patience.idle
        if self._watch.stuck(state, limit, now):
            self._give_up()

    def _give_up(self) -> None:
        if self.unsent:
            self.abort()
        elif self.receiving:
            if self._transport.get_protocol() is not self:
                self._hand_over_to(self)
            self._fail_early(RequestTimeout(f"the request did not arrive within {self._shared.patience.receiving:g} s"))
        else:
            self.close()

    def finish(self) -> None:
        """The server stops: close after the answer under way, or to a request that is on its way here."""
        self._want_close = True
        if self._endless:
            self.close()
        elif not self.busy and not self.receiving:
            asyncio.get_running_loop().call_later(self._shared.patience.parting, self._part_if_idle)

    def _part_if_idle(self) -> None:
        if not self._endless and not self.busy and not self.receiving:
            self.close()
