"""Bodies that are never held whole: they go to a sink as they come."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.daemon import wait_until
from tests.frontends.http.stage import PATIENT, Client, Stage, chunked, get, pattern, post, serving
from wakeful.errors import InvalidInput
from wakeful.frontends.http import streamed_body
from wakeful.frontends.http.connection import Connection, Route
from wakeful.frontends.http.head import Head
from wakeful.tensors import Buffer

SIZES = [0, 1, 70_000, 1_000_000, 5_000_000]


class Store:
    """A sink that keeps all, and takes only while it is let."""

    def __init__(self, connection: Connection, let: threading.Event) -> None:
        self.data = b""
        self.ends: list[str] = []
        self._connection = connection
        self._let = let

    def take(self, data: bytes) -> None:
        assert self._let.wait(30)
        self.data += data
        if b"poison" in data:
            raise InvalidInput("it is poison")

    def complete(self) -> None:
        self.ends.append("complete")
        self._connection.respond_json(b"%d" % len(self.data))

    def abandon(self) -> None:
        self.ends.append("abandon")


class Storing:
    def __init__(self) -> None:
        self.stores: list[Store] = []
        self.let = threading.Event()

    def find(self, method: str, path: str, headers: Mapping[str, str]) -> Route:
        if path == "/store":
            return Route(self._store, "oip", streams=True)
        return Route(lambda connection, head, body: connection.respond_json(b'"other"'), "oip")

    def _store(self, connection: Connection, head: Head, _: Buffer) -> None:
        if "x-refuse" in head.headers:
            raise InvalidInput("not today")
        self.stores.append(Store(connection, self.let))
        connection.stream(self.stores[-1])


@pytest.fixture
def storing() -> Storing:
    storing = Storing()
    storing.let.set()
    return storing


@pytest.fixture
def stage(storing: Storing) -> Iterator[Stage]:
    with serving(find=storing.find) as stage:
        yield stage
        stage.wait_empty()


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    client = stage.connect()
    yield client
    client.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", ["length", "chunks"])
def test_a_body_of_any_size_with_the_next_request_behind(storing: Storing, client: Client, size: int, form: str) -> None:
    body = pattern(size)
    data = post("/store", body) if form == "length" else chunked("/store", [body[at : at + 99_999] for at in range(0, size, 99_999)])
    sender = threading.Thread(target=client.send, args=[data + get("/other") + data])
    sender.start()
    assert client.receive()[2] == b"%d" % size
    assert client.receive()[2] == b'"other"'
    assert client.receive()[2] == b"%d" % size
    sender.join()
    assert [(store.data == body, store.ends) for store in storing.stores] == [(True, ["complete"])] * 2


def test_a_client_waits_where_the_sink_is_slower(storing: Storing, client: Client) -> None:
    """What is held of the body is bounded, whatever is sent."""
    storing.let.clear()
    size = 8 * streamed_body.AHEAD
    sent = threading.Event()

    def send() -> None:
        client.send(post("/store", bytes(size)))
        sent.set()

    sender = threading.Thread(target=send)
    sender.start()
    wait_until(lambda: bool(storing.stores), "it has begun")
    assert not sent.wait(0.3)
    storing.let.set()
    assert client.receive()[2] == b"%d" % size
    sender.join()


@pytest.mark.parametrize("size", [10, 100_000, 5_000_000])
@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_leaves_in_the_middle(storing: Storing, stage: Stage, size: int, reset: bool) -> None:
    client = stage.connect()
    client.send(post("/store", pattern(size))[: -size // 2])
    wait_until(lambda: bool(storing.stores), "it has begun")
    client.close(reset)
    wait_until(lambda: storing.stores[0].ends == ["abandon"], "it is abandoned")


def test_a_client_that_has_closed_its_half_gets_its_answer(storing: Storing, client: Client) -> None:
    storing.let.clear()
    client.send(post("/store", b"all"))
    client.finish()
    wait_until(lambda: bool(storing.stores), "it has begun")
    storing.let.set()
    assert client.rest().endswith(b"\r\n\r\n3")


@pytest.mark.parametrize("size", [100, 20_000_000])
def test_a_sink_that_refuses(storing: Storing, client: Client, size: int) -> None:
    threading.Thread(target=send_in_vain, args=[client, post("/store", b"poison" + bytes(size))]).start()
    status, _, body = client.receive()
    assert (status, body) == (400, b'{"error":"it is poison"}')
    assert storing.stores[0].ends == ["abandon"]


@pytest.mark.parametrize("size", [0, 10, 20_000_000])
def test_a_handler_that_refuses_does_so_before_the_body(storing: Storing, client: Client, size: int) -> None:
    threading.Thread(target=send_in_vain, args=[client, post("/store", bytes(size), "x-refuse: 1")]).start()
    assert client.receive()[2] == b'{"error":"not today"}'
    assert not storing.stores


def send_in_vain(client: Client, data: bytes) -> None:
    with suppress(OSError):
        client.send(data)


def test_it_has_a_limit_of_its_own(storing: Storing, stage: Stage) -> None:
    stage.here(lambda: setattr(stage.server._shared, "max_upload", 1000))
    for data in (post("/store", bytes(1001)), chunked("/store", [bytes(600), bytes(600)])):
        client = stage.connect()
        status, _, body = client.ask(data)
        assert (status, b"max_upload" in body) == (413, True)
        client.close()
    client = stage.connect()
    assert client.ask(post("/store", bytes(1000)))[2] == b"1000"
    client.close()


def test_a_client_that_sends_nothing_more_is_given_up(storing: Storing) -> None:
    with serving(replace(PATIENT, receiving=0.1, looking=0.02), storing.find) as stage:
        client = stage.connect()
        client.send(post("/store", bytes(1000))[:-1])
        assert client.receive()[0] == 408
        assert storing.stores[0].ends == ["abandon"]
        client.close()


def test_it_is_not_compressed(client: Client) -> None:
    assert client.ask(post("/store", b"x", "content-encoding: gzip"))[0] == 415


def test_a_client_that_asks_whether_it_may_is_told(client: Client) -> None:
    client.send(b"POST /store HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n")
    assert client._file.readline() == b"HTTP/1.1 100 Continue\r\n"
    client._file.readline()
    assert client.ask(b"abc")[2] == b"3"
