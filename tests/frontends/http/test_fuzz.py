"""Anything may come over a connection: it is answered, or refused, or waited for, and never more than once. The transport is a fake one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.errors import InvalidInput
from wakeful.frontends.http.connection import CONTINUE, LARGE_BODY, Connection, Shared
from wakeful.frontends.http.head import Head
from wakeful.frontends.http.patience import Patience
from wakeful.frontends.http.routes import Entry, Router
from wakeful.tensors import Buffer

LIMIT = 2 * LARGE_BODY


class Transport:
    """What a connection needs of uvloop's transport, in memory. Feeds whichever protocol is set."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.protocol: Any = None
        self.closed = self.paused = self.half_closed = False

    def feed(self, data: bytes) -> None:
        while data and not self.closed:
            assert not self.paused
            if isinstance(self.protocol, asyncio.BufferedProtocol):
                buffer: Any = self.protocol.get_buffer(-1)
                count = min(len(buffer), len(data))
                buffer[:count] = data[:count]
                data = data[count:]
                self.protocol.buffer_updated(count)
            else:
                received, data = data, b""
                self.protocol.data_received(received)

    def write(self, data: Buffer) -> None:
        assert not self.closed
        assert not self.half_closed
        self.sent.append(bytes(data))

    def can_write_eof(self) -> bool:
        return True

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    def write_eof(self) -> None:
        self.half_closed = True

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0


class Stage:
    """Handlers that count their calls, and fail or answer in their ways."""

    def __init__(self) -> None:
        self.calls = 0
        routes = [Entry(method, path, None, "oip", handler, "") for method, path, handler in (
            ("POST", "/a", self._echo), ("GET", "/a", self._echo), ("POST", "/v2/models/{model}/infer", self._fail), ("GET", "/b", self._break),
        )]
        self.shared = Shared(Router(routes).find, LIMIT, Patience())

    def _counted(self, answer: Callable[[Connection, Buffer], None]) -> Callable[[Connection, Head, Buffer], None]:
        def handler(connection: Connection, _: Head, body: Buffer) -> None:
            self.calls += 1
            answer(connection, body)

        return handler

    @property
    def _echo(self) -> Callable[[Connection, Head, Buffer], None]:
        return self._counted(lambda connection, body: connection.respond_json(b"%d" % len(body)))

    @property
    def _fail(self) -> Callable[[Connection, Head, Buffer], None]:
        return self._counted(lambda connection, _: connection.fail(InvalidInput("no")))

    @property
    def _break(self) -> Callable[[Connection, Head, Buffer], None]:
        def answer(connection: Connection, body: Buffer) -> None:
            raise KeyError("a fault of ours")

        return self._counted(answer)


REQUESTS = [
    b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", b"HEAD /a HTTP/1.1\r\n\r\n", b"GET /b HTTP/1.1\r\n\r\n", b"PUT /a HTTP/1.1\r\n\r\n",
    b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}",
    b"POST /a HTTP/1.1\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000,
    b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: r\r\n\r\n",
    b"POST /a HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    b"POST /a HTTP/1.1\r\nContent-Length: 999999999\r\nExpect: 100-continue\r\n\r\n",
    b"GET /nowhere HTTP/1.1\r\nConnection: close\r\n\r\n", b"\r\n", b"\r\n\r\n",
]
NASTY = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\xff", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n",
    b"0\r\n\r\n", b"HTTP/1.1", b"ffffffff",
]

Mutation = tuple[int, int, bytes]


def mutated(data: bytes, mutations: list[Mutation]) -> bytes:
    """Each mutation: at this place, drop this many bytes and put these."""
    for place, dropped, inserted in mutations:
        at = place % (len(data) + 1)
        data = data[:at] + inserted + data[at + dropped :]
    return data


mutations = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 5), st.sampled_from(NASTY) | st.binary(max_size=4)), max_size=3
)
requests = st.builds(mutated, st.sampled_from(REQUESTS), mutations)
streams = st.lists(requests | st.binary(max_size=60), max_size=6).map(b"".join)


async def play(stage: Stage, parts: list[bytes], ends: bool) -> list[bytes]:
    """What a connection answers that receives these parts."""
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    connection, transport = Connection(stage.shared), Transport()
    transport.protocol = connection
    connection.connection_made(transport)  # type: ignore[arg-type]  # a fake at the border
    for part in parts:
        for _ in range(20):  # held back while answers to what came before are due
            if not transport.paused:
                break
            await asyncio.sleep(0)
        transport.feed(part)
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    if ends and not transport.closed and not transport.protocol.eof_received():
        transport.close()
    transport.protocol.connection_lost(None)
    assert not stage.shared.connections
    assert faults == []
    return transport.sent


def heads(sent: list[bytes]) -> list[bytes]:
    return [part for part in sent if part.startswith(b"HTTP/1.1 ") and part != CONTINUE]


@settings(derandomize=True, max_examples=400, deadline=None)
@given(streams, st.lists(st.integers(0, 100_000), max_size=8), st.booleans())
def test_whatever_comes(data: bytes, cuts: list[int], ends: bool) -> None:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    parts = [data[a:b] for a, b in zip(places, [*places[1:], len(data)], strict=True)]
    stage = Stage()
    answers = heads(asyncio.run(play(stage, parts, ends)))
    assert len(answers) >= stage.calls
    assert len(answers) <= data.count(b"\r\n\r\n") + data.count(b"HTTP/") + 1
    assert all(b"connection: close" not in answer for answer in answers[:-1])
    assert all(answer.count(b"\r\n\r\n") == 1 for answer in answers)
    # cut or not, the same is understood
    other = Stage()
    whole = heads(asyncio.run(play(other, [data], ends)))
    assert [answer[:12] for answer in whole] == [answer[:12] for answer in answers]
    assert other.calls == stage.calls
    # and nothing of it stays: the next client is served
    assert asyncio.run(play(stage, [REQUESTS[0]], True))[0].endswith(b"\r\n\r\n0")


@pytest.mark.parametrize("request_", REQUESTS[:-2])
def test_each_of_the_requests_has_one_answer(request_: bytes) -> None:
    assert len(heads(asyncio.run(play(Stage(), [request_], True)))) == 1
    in_bytes = [request_[at : at + 1] for at in range(min(len(request_), 500))]
    assert len(heads(asyncio.run(play(Stage(), [*in_bytes, request_[500:]], True)))) == 1
