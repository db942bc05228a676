"""Answers without end: what is pushed comes at once, who does not read costs nothing, and nobody waits for either."""

from dataclasses import replace
from functools import partial
from typing import Any

from tests.daemon import wait_until
from tests.frontends.http.stage import PATIENT, Client, Stage, get, post, serving
from wakeful.frontends.http.line import BEHIND


def begin(stage: Stage, client: Client) -> Any:
    client.send(get("/held"))
    wait_until(lambda: len(stage.held) == 1, "the request is there")
    connection, _ = stage.held[0]
    stage.here(connection.begin_stream)
    return connection


def test_what_is_pushed_comes_at_once(stage: Stage, client: Client) -> None:
    connection = begin(stage, client)
    status, headers, _ = client.receive(head_only=True)
    assert (status, headers["content-type"], headers["connection"]) == (200, "text/event-stream", "close")
    assert "content-length" not in headers
    for text in (b"one\n", b"two\n"):
        assert stage.here(partial(connection.push, text))
        assert client._file.readline() == text
    assert stage.busy == 0
    stage.here(lambda: connection.end(b"three"))
    assert client.rest() == b"three"


def test_who_does_not_read_is_left_behind(stage: Stage) -> None:
    client = stage.connect(receive_buffer=4096)
    connection = begin(stage, client)
    piece = b"x" * 16 * 1024
    taken = 0
    while stage.here(lambda: connection.push(piece)):
        taken += len(piece)
    assert BEHIND <= stage.here(lambda: connection.unsent) <= BEHIND + 2 * len(piece)
    assert not stage.here(lambda: connection.push(b"y"))
    assert stage.busy == 0
    read = 0
    client.receive(head_only=True)
    while read < taken:
        read += len(client._file.read1(1 << 20))
    wait_until(lambda: stage.here(lambda: connection.push(b"z")), "it is taken again")
    assert client._file.read(1) == b"z"
    client.close()


def test_the_last_words_are_not_waited_for(stage: Stage) -> None:
    client = stage.connect(receive_buffer=4096)
    connection = begin(stage, client)
    while stage.here(lambda: connection.push(b"x" * 100_000)):
        pass
    stage.here(lambda: connection.end(b"bye"))
    stage.wait_empty()
    client.close()


def test_who_leaves_is_noticed(stage: Stage, client: Client) -> None:
    connection = begin(stage, client)
    waiter = connection.waiter
    client.close()
    wait_until(lambda: waiter.left, "it is told")
    assert not stage.here(lambda: connection.push(b"x"))


def test_what_is_asked_meanwhile_waits_in_vain(stage: Stage, client: Client) -> None:
    connection = begin(stage, client)
    client.send(post("/echo", b"x" * 1000))
    client.receive(head_only=True)
    stage.here(lambda: connection.push(b"one\n"))
    assert client._file.readline() == b"one\n"
    stage.here(lambda: connection.end(b""))
    client.close()


def test_who_never_reads_is_given_up() -> None:
    with serving(replace(PATIENT, reading=0.2, looking=0.02)) as stage:
        client = stage.connect(receive_buffer=4096)
        connection = begin(stage, client)
        while stage.here(lambda: connection.push(b"x" * 100_000)):
            pass
        stage.wait_empty()
        client.close()
        quiet = stage.connect()
        stage.held.clear()
        connection = begin(stage, quiet)
        quiet.receive(head_only=True)
        other = stage.connect(receive_buffer=4096)  # is given up a while after the quiet one has come
        other.send(get("/large?9000000"))
        wait_until(lambda: stage.server.connections == 1, "it was given up")
        assert stage.here(lambda: connection.push(b"still here\n"))
        assert quiet._file.readline() == b"still here\n"
        quiet.close()
        other.close()


def test_a_stop_waits_for_nobody(stage: Stage) -> None:
    with serving() as stage:
        client = stage.connect()
        begin(stage, client)
        client.receive(head_only=True)
        stage.here(stage.server.close_listeners)
        assert client.rest() == b""
        assert stage.busy == 0
        client.close()
