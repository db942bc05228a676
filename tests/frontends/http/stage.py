"""A small HTTP server of our own in a thread with uvloop, and a client that minds every byte."""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import uvloop

from tests.daemon import wait_until
from wakeful.config.settings import ServerSettings
from wakeful.frontends.http.connection import Connection, Route
from wakeful.frontends.http.head import Head
from wakeful.frontends.http.patience import Patience
from wakeful.frontends.http.routes import Entry, Router
from wakeful.frontends.http.server import HttpServer, bind
from wakeful.tensors import Buffer

LIMIT = 1 << 20
LONG = 1000.0
PATIENT = Patience(idle=LONG, receiving=LONG, reading=LONG, leaving=LONG, probing=0.01, looking=LONG)


class Stage:
    """A running server, of these routes or of some simple ones; those to /held are answered when the test says so."""

    def __init__(self, patience: Patience, find: Callable[[str, str, Mapping[str, str]], Route] | None = None, limit: int = LIMIT) -> None:
        self.held: list[tuple[Connection, Any]] = []
        self.loop = uvloop.new_event_loop()
        routes = [
            Entry("POST", "/echo", None, "oip", self._echo, ""), Entry("GET", "/name/{model}", None, "oip", self._name, ""),
            Entry("POST", "/held", None, "oip", self._hold, ""), Entry("GET", "/held", None, "oip", self._hold, ""),
            Entry("GET", "/large", None, "oip", self._large, ""), Entry("POST", "/v1/broken", None, "snooze", self._break, ""),
            Entry("GET", "/twice", None, "oip", self._twice, ""),
        ]
        self.server = HttpServer(find or Router(routes).find, ServerSettings(max_body=limit), patience)
        self.sock = bind("127.0.0.1", 0)
        self.address = self.sock.getsockname()
        self._thread = threading.Thread(target=self._run)
        self._started = threading.Event()
        self._thread.start()
        assert self._started.wait(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self.server.start(self.sock))
        self._started.set()
        self.loop.run_forever()
        self.loop.close()

    def here(self, call: Callable[[], Any]) -> Any:
        """Call in the server's loop."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - it is raised where the result is taken
                future.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return future.result(30)

    @property
    def busy(self) -> int:
        """Requests in hand, counted where no connection comes or goes meanwhile."""
        return int(self.here(lambda: self.server.busy))

    def answer(self, body: bytes = b'"late"') -> None:
        connection, _ = self.held.pop(0)
        self.here(lambda: connection.respond_json(body))

    def connect(self, receive_buffer: int | None = None) -> "Client":
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.connect(self.address)
        return Client(sock)

    def wait_empty(self) -> None:
        wait_until(lambda: self.server.connections == 0, "no connection is left")

    def stop(self) -> None:
        self.here(self.server.close_listeners)
        self.here(self.server.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    # ── handlers ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _echo(self, connection: Connection, _: Head, body: Buffer) -> None:
        connection.respond(200, (), bytes(body), "application/octet-stream")

    def _name(self, connection: Connection, head: Head, _: Buffer) -> None:
        connection.respond_json(json.dumps(head.route.parameters["model"]).encode())

    def _hold(self, connection: Connection, _: Head, body: Buffer) -> None:
        connection.waiter = SimpleNamespace(left=False)
        self.held.append((connection, connection.waiter))

    def _large(self, connection: Connection, head: Head, _: Buffer) -> None:
        connection.respond_json(b"1" * int(head.query))

    def _break(self, connection: Connection, _: Head, body: Buffer) -> None:
        raise KeyError("secret")

    def _twice(self, connection: Connection, _: Head, body: Buffer) -> None:
        connection.respond_json(b"1")
        connection.respond_json(b"2")
        raise KeyError("after the answer")


class Client:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = sock.makefile("rb")

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.sock.sendall(part)

    def ask(self, *parts: bytes) -> tuple[int, dict[str, str], bytes]:
        self.send(*parts)
        return self.receive()

    def receive(self, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        line = self._file.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        headers: dict[str, str] = {}
        while (field := self._file.readline().rstrip()) != b"":
            name, _, value = field.decode().partition(": ")
            assert name not in headers
            headers[name] = value
        body = b"" if head_only else self._file.read(int(headers.get("content-length", 0)))
        return int(line.split()[1]), headers, body

    def rest(self) -> bytes:
        """What comes until the server closes."""
        return self._file.read()

    def finish(self) -> None:
        """Close the sending half."""
        self.sock.shutdown(socket.SHUT_WR)

    def close(self, reset: bool = False) -> None:
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._file.close()
        self.sock.close()


@contextmanager
def serving(patience: Patience = PATIENT, find: Callable[[str, str, Mapping[str, str]], Route] | None = None, limit: int = LIMIT) -> Iterator[Stage]:
    """`limit`: bytes of a body."""
    stage = Stage(patience, find, limit)
    try:
        yield stage
    finally:
        stage.stop()


def post(path: str, body: bytes = b"", *fields: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: a", f"content-length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def get(path: str, *fields: str, version: str = "1.1", method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "host: a", *fields, "", ""]).encode()


def pattern(size: int) -> bytes:
    """Bytes of which no two long pieces are alike."""
    return b"".join(b"%08x" % number for number in range(size // 8 + 1))[:size]


def chunked(path: str, pieces: list[bytes], *fields: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: a", "transfer-encoding: chunked", *fields, "", ""]
    return "\r\n".join(lines).encode() + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
