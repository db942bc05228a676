"""Connections on real sockets."""

import gzip
import json
import logging
import socket
import threading
from dataclasses import replace

import pytest

from tests.daemon import wait_until
from tests.frontends.http.stage import LIMIT, PATIENT, Client, Stage, chunked, get, pattern, post, serving
from wakeful.errors import Unavailable
from wakeful.frontends.http.connection import AHEAD_LIMIT, CONTINUE, LARGE_BODY

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


def test_a_half_closed_client_that_ended_with_an_empty_line(stage: Stage, client: Client) -> None:
    """The line is not the beginning of another request for which the connection would have to stay."""
    client.send(get("/held") + b"\r\n")
    client.finish()
    wait_until(lambda: stage.held, "the request is there")
    stage.answer()
    assert client.rest().endswith(b'"late"')


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
    wait_until(lambda: stage.busy == 1, "the answer is on its way")
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
        wait_until(lambda: stage.held and stage.busy == 3, "three requests are under way")
        stage.here(stage.server.close_listeners)
        assert idle.rest() == b""
        with pytest.raises(OSError, match=r"refused|reset"):
            socket.create_connection(stage.address)
        assert stage.busy == 3
        stage.answer()
        assert held.receive()[1]["connection"] == "close"
        assert held.rest() == b""
        status, headers, body = half.ask(b"c")
        assert (status, headers["connection"], body) == (200, "close", b"abc")
        assert half.rest() == b""
        assert len(slow.receive()[2]) == 8_000_000
        wait_until(lambda: stage.busy == 0, "all is answered")
        for client in (idle, held, half, slow):
            client.close()


def test_a_request_that_was_on_its_way_when_the_server_stopped_is_answered() -> None:
    """Seen with clients that ask again at once: their next request met a connection that had just been closed."""
    with serving(replace(PATIENT, parting=60.0)) as stage:
        client = stage.connect()
        assert client.ask(get("/name/a"))[0] == 200
        stage.here(stage.server.close_listeners)
        status, headers, body = client.ask(get("/name/b"))
        assert (status, headers["connection"], body) == (200, "close", b'"b"')
        assert client.rest() == b""
        client.close()


def test_stopping_does_not_wait_for_a_client_that_takes_nothing() -> None:
    """The loop itself would wait for it for ever."""
    with serving() as stage:
        client = stage.connect(receive_buffer=4096)
        client.send(get("/large?20000000", "connection: close"))
        wait_until(lambda: stage.busy == 1, "the answer is on its way")
    client.close()
