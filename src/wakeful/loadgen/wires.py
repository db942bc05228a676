"""Connections that carry one call at a time, and the loop that watches them: one thread, epoll, raw sockets, and as little Python a call as possible.

An answer whose head is known and which came in one piece costs a search, a look-up and a comparison; everything else takes the long way.
"""

import select
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from wakeful.clock import monotonic
from wakeful.loadgen.answers import END, Answer, Malformed
from wakeful.loadgen.calls import Call
from wakeful.loadgen.timer import Timer

LOOK = 0.1
"""Seconds between two looks at what does not happen by itself: timeouts, the end."""
CHUNK = 1 << 16
EVENTS = 256
KNOWN_HEADS = 4096
PATIENCE = 2.0
"""Seconds for one of several addresses to answer."""
TEXT = 1000
"""Characters of an error's text that are kept."""


class Wire:
    """One connection."""

    __slots__ = ("answer", "call", "fd", "open", "recv", "rest", "send", "served", "sock", "start")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.recv, self.send = sock.recv, sock.send
        self.open = True
        self.call = -1
        """Index of the call that is under way; -1: none."""
        self.start = 0.0
        """Moment from which the call's latency counts."""
        self.rest: memoryview | None = None
        """What of the call is still to be sent."""
        self.answer: Answer | None = None
        """An answer that took the long way."""
        self.served = 0
        """Calls that the connection has carried."""


class Wires:
    """All connections to one server. Whoever drives them says what follows an answer."""

    def __init__(self, address: tuple[str, int], calls: Sequence[Call], timeout: float) -> None:
        if not calls:
            raise ValueError("there is no call to send")
        self._family, self._address = _reachable(address)
        self._payloads = [call.data for call in calls]
        self._sizes = [len(call.data) for call in calls]
        self._timeout = timeout
        self._known: dict[bytes, tuple[int, int]] = {}
        self._epoll = select.epoll()
        self.timer = Timer()
        self._epoll.register(self.timer.fd, select.EPOLLIN | select.EPOLLET)
        self.wires: dict[int, Wire] = {}
        self.errors: dict[int, str] = {}
        """The first text of each status that is not 2xx; 0: no answer."""
        self.done: Callable[[Wire, int, int, float], None]
        """Called with a wire that is free again (or no longer open), the call that it had, its status, and the moment."""

    def close(self) -> None:
        for wire in list(self.wires.values()):
            self.drop(wire)
        self._epoll.close()
        self.timer.close()

    def connect(self) -> Wire:
        """A new connection, which may still be on its way. OSError: there can be none."""
        sock = socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect_ex(self._address)  # a refusal shows when it is used
            self._epoll.register(sock, select.EPOLLIN)
        except BaseException:
            sock.close()
            raise
        wire = Wire(sock)
        self.wires[wire.fd] = wire
        return wire

    def drop(self, wire: Wire) -> None:
        if wire.open:
            wire.open = False
            del self.wires[wire.fd]
            wire.sock.close()  # epoll forgets it by itself

    def begin(self, wire: Wire, call: int, start: float) -> None:
        """Send a call over a free wire."""
        wire.call = call
        wire.start = start
        try:
            sent = wire.send(self._payloads[call])
        except OSError as error:
            self._send_failed(wire, error)
            return
        if sent != self._sizes[call]:
            self._send_later(wire, sent)

    def turn(self, timeout: float) -> None:
        """Wait until something happens, at most `timeout` seconds, and deal with all that has."""
        timer, wires, known, done, find = self.timer.fd, self.wires, self._known, self.done, bytes.find
        for fd, events in self._epoll.poll(timeout, EVENTS):
            if fd == timer:
                continue
            wire = wires.get(fd)
            if wire is None:  # dropped since the poll
                continue
            if events != 1:
                self._unusual(wire, events)
                continue
            try:
                data = wire.recv(CHUNK)
            except OSError as error:
                self._receive_failed(wire, error)
                continue
            if wire.answer is None:
                end = find(data, END)
                fact = known.get(data[:end])
                if fact is not None and end + fact[1] == len(data) and (call := wire.call) >= 0:
                    wire.served += 1
                    wire.call = -1
                    done(wire, call, fact[0], monotonic())
                    continue
            self._received(wire, data)

    def look(self, now: float) -> None:
        """End calls that have waited for too long."""
        for wire in list(self.wires.values()):
            if wire.call >= 0 and now - wire.start > self._timeout:
                self._fail(wire, f"no answer within {self._timeout:g} s", now)

    # ── the long way ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _received(self, wire: Wire, data: bytes) -> None:
        if not data:
            self._ended(wire, "the server closed the connection before its answer was whole")
            return
        if wire.call < 0:
            self.drop(wire)  # an answer to nothing: a server that says goodbye with a 408, or is out of step
            return
        answer = wire.answer = wire.answer or Answer()
        try:
            whole = answer.feed(data)
        except Malformed as error:
            self._fail(wire, str(error), monotonic())
            return
        if not whole:
            return
        head = answer.head
        assert head is not None
        self._finish(wire, answer)
        if head.length >= 0 and head.stays and (200 <= head.status < 300 or head.status in self.errors):
            self._remember(data, head.status, head.length)

    def _remember(self, data: bytes, status: int, length: int) -> None:
        """A head that came in one piece with its body will be known when it comes again."""
        end = data.find(END)
        if end > 0 and end + 4 + length == len(data):
            if len(self._known) >= KNOWN_HEADS:
                self._known.clear()
            self._known[data[:end]] = status, length + 4

    def _finish(self, wire: Wire, answer: Answer) -> None:
        now, head = monotonic(), answer.head
        assert head is not None
        if not 200 <= head.status < 300 and head.status not in self.errors:
            text = " ".join(answer.body.decode("utf-8", "replace").split())[:TEXT]
            self.errors[head.status] = "".join(one if one.isprintable() else "?" for one in text)  # it will be shown on a terminal
        if not head.stays or answer.surplus:
            self.drop(wire)
        self._free(wire, head.status, now)

    def _free(self, wire: Wire, status: int, now: float) -> None:
        if wire.rest is not None:  # answered before all was sent: what is left would be taken for the next call
            self.drop(wire)
        call = wire.call
        wire.served += 1
        wire.call = -1
        wire.answer = wire.rest = None
        self.done(wire, call, status, now)

    def _fail(self, wire: Wire, text: str, now: float) -> None:
        """The call ends without an answer, and the connection with it."""
        self.errors.setdefault(0, text)
        self.drop(wire)
        self._free(wire, 0, now)

    def _ended(self, wire: Wire, text: str) -> None:
        """The connection is gone. A server may close one that is idle just as the next call is sent over it; that call is sent once more."""
        if wire.call < 0:
            self.drop(wire)
        elif wire.answer is not None and wire.answer.closed():
            self.drop(wire)
            self._finish(wire, wire.answer)
        elif wire.served and (wire.answer is None or not wire.answer.begun()):
            self.drop(wire)
            wire.answer = wire.rest = None
            self._once_more(wire)
        else:
            self._fail(wire, text, monotonic())

    def _once_more(self, wire: Wire) -> None:
        try:
            other = self.connect()
        except OSError as error:
            self._fail(wire, _text(error), monotonic())
            return
        self.begin(other, wire.call, wire.start)

    def _unusual(self, wire: Wire, events: int) -> None:
        if events & (select.EPOLLIN | select.EPOLLERR | select.EPOLLHUP):
            try:
                data = wire.recv(CHUNK)
            except BlockingIOError:
                pass
            except OSError as error:
                self._receive_failed(wire, error)
                return
            else:
                self._received(wire, data)
                return
        if events & select.EPOLLOUT:
            self._send_on(wire)

    def _send_on(self, wire: Wire) -> None:
        rest = wire.rest
        if rest is None:
            return
        try:
            wire.rest = rest[wire.send(rest) :] or None
        except BlockingIOError:
            return
        except OSError as error:
            self._receive_failed(wire, error)
            return
        if wire.rest is None:
            self._epoll.modify(wire.fd, select.EPOLLIN)

    def _send_later(self, wire: Wire, sent: int) -> None:
        wire.answer = Answer()  # one that comes before all was sent must not take the short way
        wire.rest = memoryview(self._payloads[wire.call])[sent:]
        self._epoll.modify(wire.fd, select.EPOLLIN | select.EPOLLOUT)

    def _send_failed(self, wire: Wire, error: OSError) -> None:
        if isinstance(error, BlockingIOError):
            self._send_later(wire, 0)
        else:
            self._receive_failed(wire, error)

    def _receive_failed(self, wire: Wire, error: OSError) -> None:
        if isinstance(error, BlockingIOError):
            return
        with suppress(OSError):  # after a failed send there may be an answer that says why
            if data := wire.recv(CHUNK):
                self._received(wire, data)
                return
        self._ended(wire, _text(error))


def _text(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _reachable(address: tuple[str, int]) -> tuple[int, tuple[object, ...]]:
    """Family and address. A name may stand for several, "localhost" for one of IPv6 and one of IPv4: the first that answers is meant."""
    found = [(family, where) for family, _, _, _, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM)]
    for family, where in found if len(found) > 1 else ():
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(PATIENCE)
            sock.connect(where)
            return family, where
    return found[0]
