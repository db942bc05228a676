"""Connections on real sockets, served by a small server of our own in a thread with uvloop."""

import asyncio
import gzip
import json
import logging
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from tests.daemon import wait_until
from wakeful.config.settings import ServerSettings
from wakeful.errors import Unavailable
from wakeful.frontends.http.connection import AHEAD_LIMIT, CONTINUE, HEAD_LIMIT, LARGE_BODY, Connection, Patience
from wakeful.frontends.http.encoding import MEMBERS
from wakeful.frontends.http.head import Head
from wakeful.frontends.http.routes import Entry, Router
from wakeful.frontends.http.server import HttpServer, bind
from wakeful.tensors import Buffer

LIMIT = 1 << 20
LONG = 1000.0
PATIENT = Patience(idle=LONG, receiving=LONG, reading=LONG, leaving=LONG, probing=0.01, looking=LONG)


class Stage:
    """A running server whose requests to /held are answered when the test says so."""

    def __init__(self, patience: Patience) -> None:
        self.held: list[tuple[Connection, Any]] = []
        self.loop = uvloop.new_event_loop()
        routes = [
            Entry("POST", "/echo", "oip", self._echo, ""), Entry("GET", "/name/{model}", "oip", self._name, ""),
            Entry("POST", "/held", "oip", self._hold, ""), Entry("GET", "/held", "oip", self._hold, ""),
            Entry("GET", "/large", "oip", self._large, ""), Entry("POST", "/v1/broken", "snooze", self._break, ""),
            Entry("GET", "/twice", "oip", self._twice, ""),
        ]
        self.server = HttpServer(Router(routes).find, ServerSettings(max_body=LIMIT), patience)
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
def serving(patience: Patience = PATIENT) -> Iterator[Stage]:
    stage = Stage(patience)
    try:
        yield stage
    finally:
        stage.stop()


@pytest.fixture(scope="module")
def shared_stage() -> Iterator[Stage]:
    with serving() as stage:
        yield stage


@pytest.fixture
def stage(shared_stage: Stage) -> Iterator[Stage]:
    """Every test ends with nothing left behind."""
    yield shared_stage
    shared_stage.wait_empty()
    shared_stage.held.clear()


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    client = stage.connect()
    yield client
    client.close()


def post(path: str, body: bytes = b"", *fields: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: a", f"content-length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def get(path: str, *fields: str, version: str = "1.1", method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "host: a", *fields, "", ""]).encode()


def pattern(size: int) -> bytes:
    """Bytes of which no two long pieces are alike."""
    return b"".join(b"%08x" % number for number in range(size // 8 + 1))[:size]


# ── one request after the other ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_connection_is_kept(client: Client) -> None:
    for number in range(3):
        body = b"%d" % number
        assert client.ask(post("/echo", body)) == (200, {"content-type": "application/octet-stream", "content-length": "1"}, body)


@pytest.mark.parametrize("together", [True, False])
def test_pipelined_requests_are_answered_in_order(stage: Stage, client: Client, together: bool) -> None:
    requests = [get("/name/first"), post("/held"), post("/echo", b"x" * 70_000), get("/name/last"), get("/nowhere")]
    client.send(*([b"".join(requests)] if together else requests))
    wait_until(lambda: stage.held, "the second request is there")
    stage.answer()
    assert [client.receive()[2][:6] for _ in requests] == [b'"first', b'"late"', b"xxxxxx", b'"last"', b'{"erro']


def test_many_pipelined_requests(client: Client) -> None:
    count = 5000
    threading.Thread(target=client.send, args=[b"".join(get(f"/name/{number}") for number in range(count))]).start()
    assert [json.loads(client.receive()[2]) for _ in range(count)] == [str(number) for number in range(count)]


@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_request_in_small_pieces(client: Client, step: int) -> None:
    data = post("/echo", b"hello") + get("/name/a")
    client.send(*(data[at : at + step] for at in range(0, len(data), step)))
    assert client.receive()[2] == b"hello"
    assert client.receive()[2] == b'"a"'


def test_empty_lines_between_requests(client: Client) -> None:
    assert client.ask(b"\r\n\r\n\n\r\n" + get("/name/a") + b"\r\n")[2] == b'"a"'
    assert client.ask(b"\r\n", b"\r\n", get("/name/b"))[2] == b'"b"'


# ── large bodies ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

SIZES = [0, 1, LARGE_BODY - 1, LARGE_BODY, LARGE_BODY + 1, 3 * LARGE_BODY + 7, LIMIT - 1, LIMIT]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pieces", ["one", "head apart", "many"])
def test_a_body_of_any_size_with_the_next_request_behind(client: Client, size: int, pieces: str) -> None:
    body = pattern(size)
    data = post("/echo", body) + get("/name/next") + post("/echo", body[:100])
    start = len(data) - len(data.partition(b"\r\n\r\n")[2])
    cuts = {"one": [0], "head apart": [0, start], "many": [0, start - 2, start + 1, *range(start + 10, len(data), 33_333)]}[pieces]
    parts = [data[a:b] for a, b in zip(cuts, [*cuts[1:], len(data)], strict=True)]
    threading.Thread(target=client.send, args=parts).start()
    assert client.receive()[2] == body
    assert client.receive()[2] == b'"next"'
    assert client.receive()[2] == body[:100]


def test_large_bodies_one_after_the_other(client: Client) -> None:
    for number in range(20):
        body = pattern(LARGE_BODY + 1000 * number)
        assert client.ask(post("/echo", body))[2] == body


@pytest.mark.parametrize("held", [False, True])
def test_a_large_body_sent_ahead(stage: Stage, client: Client, held: bool) -> None:
    """More than is read ahead, so that the connection is paused when the large body's turn comes."""
    body = pattern(LIMIT)
    sender = threading.Thread(target=client.send, args=[post("/held" if held else "/echo", b"first") + post("/echo", body) + get("/name/next")])
    sender.start()
    if held:
        wait_until(lambda: stage.held, "the first request is there")
        stage.answer()
    assert client.receive()[2] == (b'"late"' if held else b"first")
    assert client.receive()[2] == body
    assert client.receive()[2] == b'"next"'
    sender.join()


@pytest.mark.parametrize("size", [10, LARGE_BODY - 1, LARGE_BODY, LIMIT])
@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_a_client_that_leaves_in_the_middle_of_its_body(stage: Stage, size: int, how: str) -> None:
    client = stage.connect()
    client.send(post("/echo", pattern(size))[: -size // 2 or -1])
    wait_until(lambda: stage.server.busy == 1, "the request is under way")
    if how == "half":
        client.finish()
        assert client.rest() == b""
    client.close(reset=how == "reset")


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_leaves_in_the_middle_of_its_head(stage: Stage, reset: bool) -> None:
    client = stage.connect()
    client.send(b"POST /echo HT")
    wait_until(lambda: stage.server.busy == 1, "the request is under way")
    client.close(reset)


# ── chunks ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def chunked(path: str, pieces: list[bytes], *fields: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: a", "transfer-encoding: chunked", *fields, "", ""]
    return "\r\n".join(lines).encode() + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])


@pytest.mark.parametrize("size", [1, 1000, LARGE_BODY, LIMIT])
@pytest.mark.parametrize("cut", [33_333, 1 << 30])
def test_a_chunked_body(client: Client, size: int, cut: int) -> None:
    body = pattern(size)
    data = chunked("/echo", [body[at : at + 50_000] for at in range(0, size, 50_000)]) + get("/name/next")
    client.send(*(data[at : at + cut] for at in range(0, len(data), cut)))
    assert client.receive()[2] == body
    assert client.receive()[2] == b'"next"'


def test_a_chunked_body_over_the_limit(client: Client) -> None:
    status, headers, body = client.ask(chunked("/echo", [pattern(LIMIT), b"x"]))
    assert (status, headers["connection"]) == (413, "close")
    assert b"max_body" in body
    assert client.rest() == b""


def test_a_malformed_chunk(client: Client) -> None:
    status, headers, body = client.ask(chunked("/echo", [b"abc"]).replace(b"3\r\n", b"zz\r\n"))
    assert (status, headers["connection"]) == (400, "close")
    assert b"chunk size in hexadecimal" in body
    assert client.rest() == b""


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [LIMIT + 1, 10 * 1024**3])
def test_too_large_is_known_from_the_declared_length(client: Client, size: int) -> None:
    """No byte of the body has been sent, and nothing invites it."""
    status, headers, body = client.ask(f"POST /echo HTTP/1.1\r\ncontent-length: {size}\r\nexpect: 100-continue\r\n\r\n".encode())
    assert (status, headers["connection"]) == (413, "close")
    assert b"max_body" in body
    assert client.rest() == b""


def test_a_client_that_sends_its_too_large_body_first_can_read_the_answer(client: Client) -> None:
    client.send(post("/echo", pattern(8 * LIMIT)))
    assert client.receive()[0] == 413
    assert client.rest() == b""


@pytest.mark.parametrize("complete", [True, False])
def test_a_head_over_the_limit(client: Client, complete: bool) -> None:
    status, headers, body = client.ask(get("/name/a", "x: " + "a" * HEAD_LIMIT)[: None if complete else -2])
    assert (status, headers["connection"]) == (431, "close")
    assert b"32 KiB" in body
    assert client.rest() == b""


def test_a_head_just_under_the_limit(client: Client) -> None:
    size = HEAD_LIMIT - len(get("/name/a", "x: "))
    assert client.ask(get("/name/a", "x: " + "a" * size))[2] == b'"a"'
    assert client.ask(get("/name/a", "x: " + "a" * (size + 1)))[0] == 431


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"hello\n", b"GET / HTTP/1.1\n\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 100]
)
def test_garbage(client: Client, data: bytes) -> None:
    """Also what has no end of a head: a client that speaks TLS need not wait to hear that we do not."""
    status, headers, body = client.ask(data)
    assert (status, headers["connection"]) == (400, "close")
    assert json.loads(body)["error"]
    assert client.rest() == b""


def test_nothing_after_a_malformed_request_is_answered(client: Client) -> None:
    client.send(b"POST /echo HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + get("/name/smuggled"))
    assert client.receive()[0] == 400
    assert client.rest() == b""


# ── encodings ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000, LIMIT])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP", "identity"])
def test_encoded_bodies(client: Client, size: int, encoding: str) -> None:
    body = pattern(size)
    coders: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}
    coded = coders[encoding.lower()](body)
    client.send(post("/echo", coded, f"content-encoding: {encoding}") + get("/name/next"))
    assert client.receive()[2] == body
    assert client.receive()[2] == b'"next"'


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "x", ""])
def test_an_encoding_that_is_not_known(client: Client, encoding: str) -> None:
    status, headers, _ = client.ask(post("/echo", b"abc", f"content-encoding: {encoding}"))
    assert (status, headers["accept-encoding"]) == (415, "gzip, deflate")
    assert client.ask(get("/name/next"))[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"plain text", gzip.compress(b"abc")[:-1], gzip.compress(b"abc")[:-8] + bytes(8), gzip.compress(b"abc") + b"garbage",
        zlib.compress(b"abc")[:-1], gzip.compress(pattern(100_000))[:-5], gzip.compress(b"") * (MEMBERS + 1),
    ],
)
def test_a_bad_encoded_body(client: Client, body: bytes) -> None:
    status, _, text = client.ask(post("/echo", body, "content-encoding: gzip"))
    assert status == 400
    assert b"gzip" in text
    assert client.ask(get("/name/next"))[0] == 200


def test_several_members(client: Client) -> None:
    body = gzip.compress(b"one,") + gzip.compress(b"") + gzip.compress(b"two")
    assert client.ask(post("/echo", body, "content-encoding: gzip"))[2] == b"one,two"


@pytest.mark.parametrize("size", [LIMIT + 1, 100 * LIMIT])
@pytest.mark.parametrize("members", [1, 3])
def test_the_limit_counts_inflated_bytes(client: Client, size: int, members: int) -> None:
    coded = b"".join(gzip.compress(bytes(size // members + 1)) for _ in range(members))
    assert client.ask(post("/echo", coded, "content-encoding: gzip"))[0] == 413
    assert client.ask(get("/name/next"))[0] == 200


def test_chunked_and_encoded(client: Client) -> None:
    body = pattern(100_000)
    coded = gzip.compress(body)
    assert client.ask(chunked("/echo", [coded[:1000], coded[1000:]], "content-encoding: gzip"))[2] == body


# ── versions, methods, expectations ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/name/a", "/nowhere", "/large?200000"])
@pytest.mark.parametrize(
    ("version", "field", "answer"),
    [("1.1", "x: y", None), ("1.1", "connection: close", "close"), ("1.0", "x: y", "close"), ("1.0", "connection: keep-alive", "keep-alive")],
)
def test_whether_the_connection_stays(client: Client, path: str, version: str, field: str, answer: str | None) -> None:
    assert client.ask(get(path, field, version=version))[1].get("connection") == answer
    if answer == "close":
        assert client.rest() == b""
    else:
        assert client.ask(get("/name/next"))[2] == b'"next"'


@pytest.mark.parametrize(("path", "length"), [("/name/abc", 5), ("/large?70000", 70_000), ("/nowhere", None)])
def test_head_has_no_body(client: Client, path: str, length: int | None) -> None:
    client.send(get(path, method="HEAD") + get("/name/next"))
    _, headers, _ = client.receive(head_only=True)
    assert length is None or int(headers["content-length"]) == length
    assert client.receive()[2] == b'"next"'


def test_a_method_that_is_not_allowed(client: Client) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "GET"):
        status, headers, body = client.ask(get("/echo", method=method))
        assert (status, headers["allow"]) == (405, "POST")
        assert method in json.loads(body)["error"]
    assert client.ask(post("/name/a"))[1]["allow"] == "GET, HEAD"


@pytest.mark.parametrize("body", [b"abc", pattern(LARGE_BODY + 1)])
@pytest.mark.parametrize("kind", ["length", "chunked"])
def test_expect_continue(client: Client, body: bytes, kind: str) -> None:
    data = post("/echo", body, "expect: 100-continue") if kind == "length" else chunked("/echo", [body], "Expect: 100-Continue")
    head, _, rest = data.partition(b"\r\n\r\n")
    client.send(head + b"\r\n\r\n")
    assert client.receive() == (100, {}, b"")
    assert client.ask(rest)[2] == body
    assert client.ask(data)[2] == body  # who does not wait is not invited


def test_an_upgrade_is_not_taken(client: Client) -> None:
    fields = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAoAAAAAIAAAAA")
    assert client.ask(post("/echo", b"abc", *fields))[2] == b"abc"
    assert client.ask(get("/name/next"))[2] == b'"next"'


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/name/a/b/c", "a/b/c"), ("/name/a%2Fb", "a/b"), ("//name///a/", "a"), ("/name/caf%C3%A9", "café"), ("/name/a?x=/y", "a"),
        ("/n%61me/a", "a"),
        ("http://host/name/a", "a"), ("/name/..", ".."), ("/name/a%0Ab", "a\nb"), ("/name/%00", "\0"), ("/name/" + "x" * 3000, "x" * 3000),
    ],
)
def test_paths(client: Client, path: str, name: str) -> None:
    """A name is a name, however it looks: nothing is made of it but a key."""
    assert json.loads(client.ask(get(path))[2]) == name


# ── faults of handlers ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fault_of_ours(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert client.ask(post("/v1/broken", b"abc"))[::2] == (500, b'{"error":"internal error"}')
    assert "secret" in caplog.text
    assert client.ask(get("/name/next"))[0] == 200


def test_a_request_has_one_answer(client: Client) -> None:
    assert client.ask(get("/twice") + get("/name/next"))[2] == b"1"
    assert client.receive()[2] == b'"next"'


# ── clients that leave, and such that only seem to ───────────────────────────────────────────────────────────────────────────────────────


def test_a_half_closed_client_gets_its_answers(stage: Stage, client: Client) -> None:
    client.send(get("/held") + get("/name/a") + post("/echo", b"xyz") + get("/name/cut")[:-1])
    client.finish()
    wait_until(lambda: stage.held, "the first request is there")
    stage.answer()
    answers = client.rest().replace(CONTINUE, b"")
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert answers.index(b'"late"') < answers.index(b'"a"') < answers.index(b"xyz")


def test_a_half_closed_client_of_a_fast_answer(client: Client) -> None:
    client.send(get("/name/a"))
    client.finish()
    assert client.rest().endswith(b'"a"')


def test_an_old_half_closed_client_sees_no_interim_answer(stage: Stage, client: Client) -> None:
    client.send(get("/held", version="1.0"))
    client.finish()
    wait_until(lambda: stage.held, "the request is there")
    stage.here(lambda: None)
    stage.answer()
    assert client.rest().startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_leaves_before_its_answer(stage: Stage, reset: bool) -> None:
    client = stage.connect()
    client.send(post("/held", b"abc"))
    wait_until(lambda: stage.held, "the request is there")
    client.close(reset)
    connection, waiter = stage.held[0]
    wait_until(lambda: waiter.left, "the request knows that nobody waits")
    stage.wait_empty()
    stage.here(lambda: connection.respond_json(b"1"))
    stage.here(lambda: connection.fail(Unavailable("x")))


def test_a_client_that_leaves_while_its_body_is_inflated(stage: Stage) -> None:
    request = post("/echo", gzip.compress(pattern(LIMIT), 1), "content-encoding: gzip")
    for _ in range(10):
        client = stage.connect()
        client.send(request)
        client.close(reset=True)
    stage.wait_empty()


def test_an_answer_that_is_taken_slowly(stage: Stage) -> None:
    """What does not fit into the socket's buffers waits, and so do the requests behind it."""
    client = stage.connect(receive_buffer=4096)
    size = 8 << 20
    client.send(get(f"/large?{size}") + get("/held"))
    wait_until(lambda: stage.server.busy == 1, "the answer is on its way")
    assert not stage.held
    assert client.receive()[2] == b"1" * size
    wait_until(lambda: stage.held, "the next request has its turn")
    stage.answer()
    assert client.receive()[2] == b'"late"'
    client.close()


def flood(stage: Stage, client: Client, data: bytes) -> int:
    """Send until nothing more is taken; how many bytes were."""
    client.sock.setblocking(False)
    sent = 0
    try:
        while sent < 100 << 20:
            sent += client.sock.send(data)
            stage.here(lambda: None)
    except BlockingIOError:
        client.sock.settimeout(30)
    return sent


def test_a_client_that_sends_and_never_reads_is_not_read_for_ever(stage: Stage) -> None:
    client = stage.connect(receive_buffer=4096)
    requests = get("/large?100000") * 100
    assert flood(stage, client, requests) < 100 << 20
    client.close(reset=True)


def test_a_client_that_sends_ahead_is_not_read_for_ever(stage: Stage) -> None:
    client = stage.connect()
    client.send(post("/held"))
    wait_until(lambda: stage.held, "the request is there")
    sent = flood(stage, client, get("/name/ahead") * 1000)
    assert AHEAD_LIMIT < sent < 100 << 20
    stage.answer()
    assert client.receive()[2] == b'"late"'
    for _ in range(sent // len(get("/name/ahead"))):
        assert client.receive()[2] == b'"ahead"'
    client.close()


def test_many_connections(stage: Stage) -> None:
    clients = [stage.connect() for _ in range(1000)]
    for number, client in enumerate(clients):
        client.send(post("/echo", b"%d" % number))
    assert [client.receive()[2] for client in clients] == [b"%d" % number for number in range(1000)]
    assert stage.server.connections == 1000
    for client in clients:
        client.close()


# ── the server's care ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_idle_connection_is_closed() -> None:
    with serving(replace(PATIENT, idle=0.0, looking=0.01)) as stage:
        never, once, held = stage.connect(), stage.connect(), stage.connect()
        held.send(post("/held"))
        wait_until(lambda: stage.held, "the request is there")
        assert never.rest() == b""
        once.send(get("/name/a"))
        assert once.rest() in (b"", b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\r\n"a"')
        wait_until(lambda: stage.server.connections == 1, "only the busy connection is left")
        stage.answer()
        assert held.receive()[2] == b'"late"'
        assert held.rest() == b""
        for client in (never, once, held):
            client.close()


@pytest.mark.parametrize(
    "data",
    [b"GET", post("/echo", b"abc")[:-1], post("/echo", pattern(LIMIT))[:-1], chunked("/echo", [b"abc"])[:-1]],
    ids=["head", "body", "large body", "chunks"],
)
def test_a_request_that_does_not_arrive(data: bytes) -> None:
    with serving(replace(PATIENT, receiving=0.0, looking=0.01)) as stage:
        client = stage.connect()
        client.send(data)
        status, headers, body = client.receive()
        assert (status, headers["connection"]) == (408, "close")
        assert b"did not arrive" in body
        client.send(b"x" * 10)
        assert client.rest() == b""
        client.close()
        stage.wait_empty()


def test_an_idle_time_does_not_count_for_the_request_after_it() -> None:
    """Looks are made by hand here."""
    with serving(replace(PATIENT, idle=100, receiving=60)) as stage:
        client = stage.connect()
        assert client.ask(get("/name/a"))[0] == 200
        (connection,) = stage.server._shared.connections
        stage.here(lambda: connection.look_after(1000.0))
        stage.here(lambda: connection.look_after(1070.0))
        client.send(post("/echo", b"abc")[:-1])
        wait_until(lambda: connection.receiving, "the next request is under way")
        stage.here(lambda: connection.look_after(1080.0))
        stage.here(lambda: connection.look_after(1130.0))
        assert client.ask(b"c")[2] == b"abc"
        stage.here(lambda: connection.look_after(1200.0))
        stage.here(lambda: connection.look_after(1290.0))
        assert client.ask(get("/name/a"))[0] == 200
        client.close()


def test_an_answer_that_is_not_taken() -> None:
    with serving(replace(PATIENT, reading=0.0, looking=0.01)) as stage:
        client = stage.connect(receive_buffer=4096)
        client.send(get("/large?20000000"))
        stage.wait_empty()
        client.close()


def test_a_refused_client_that_stays_is_left() -> None:
    with serving(replace(PATIENT, leaving=0.01)) as stage:
        client = stage.connect()
        assert client.ask(b"garbage\r\n\r\n")[0] == 400
        stage.wait_empty()
        client.close()


# ── stopping ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_stopping() -> None:
    with serving() as stage:
        idle, held, half, slow = stage.connect(), stage.connect(), stage.connect(), stage.connect(receive_buffer=4096)
        held.send(post("/held") + get("/name/dropped"))
        half.send(post("/echo", b"abc")[:-1])
        slow.send(get("/large?8000000"))
        assert idle.ask(get("/name/a"))[0] == 200
        wait_until(lambda: stage.held and stage.server.busy == 3, "three requests are under way")
        stage.here(stage.server.close_listeners)
        assert idle.rest() == b""
        with pytest.raises(OSError, match=r"refused|reset"):
            socket.create_connection(stage.address)
        assert stage.here(lambda: stage.server.busy) == 3
        stage.answer()
        assert held.receive()[1]["connection"] == "close"
        assert held.rest() == b""
        status, headers, body = half.ask(b"c")
        assert (status, headers["connection"], body) == (200, "close", b"abc")
        assert half.rest() == b""
        assert len(slow.receive()[2]) == 8_000_000
        wait_until(lambda: stage.server.busy == 0, "all is answered")
        for client in (idle, held, half, slow):
            client.close()


def test_stopping_does_not_wait_for_a_client_that_takes_nothing() -> None:
    """The loop itself would wait for it for ever."""
    with serving() as stage:
        client = stage.connect(receive_buffer=4096)
        client.send(get("/large?20000000", "connection: close"))
        wait_until(lambda: stage.server.busy == 1, "the answer is on its way")
    client.close()
