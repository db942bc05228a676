"""The whole HTTP edge in memory: a connection whose other end is the test, the real routes and handlers, and models that give back what they get."""

import asyncio
from collections.abc import Coroutine, Mapping
from functools import cache
from typing import Any

from wakeful.batching.settling import Settler
from wakeful.engine import Engine
from wakeful.errors import NotFound
from wakeful.frontends.http.chunked_body import ChunkedBody
from wakeful.frontends.http.connection import AHEAD_LIMIT, CONTINUE, LARGE_BODY, Connection, Route, Shared
from wakeful.frontends.http.head import REMEMBERED, Head
from wakeful.frontends.http.openapi import described
from wakeful.frontends.http.patience import Patience
from wakeful.frontends.http.routes import Entry, Router, table
from wakeful.inference import InferRequest
from wakeful.models.pipelines.pipelines import Pipelines
from wakeful.models.registry import Registry
from wakeful.models.signature import Validator
from wakeful.runtime.messages import Placement, Signature, TensorSpec
from wakeful.telemetry.events import Events
from wakeful.telemetry.metrics import Metrics
from wakeful.tensors import DTYPES, Buffer, Tensor
from wakeful.worker import arrays

LIMIT = 2 * LARGE_BODY
"""Of a body."""
RECEIVED = 16 * 1024
"""Bytes that a socket has at once."""
TURNS = 20
"""Of the loop, after which nothing moves any more that waits for nothing."""


def _signature(*specs: TensorSpec) -> Signature:
    return Signature(specs, specs)


MODELS = {
    "pair": _signature(TensorSpec("a", "FP32", ("N", 2)), TensorSpec("b", "INT64", ("N",))),
    **{datatype.lower(): _signature(TensorSpec("x", datatype, ())) for datatype in DTYPES},
}
"""By name; those of one datatype take any shape."""


class EchoEngine(Engine):
    """All of the engine but its models, whose outputs are their inputs."""

    def __init__(self) -> None:
        super().__init__(Registry(), Pipelines(self._nothing, Events()), None, Metrics(), Events(), self._nothing, self._nothing)  # type: ignore[arg-type]  # no model is loaded
        self.condition.ready = True
        self._validators = {name: Validator(signature, mergeable=True) for name, signature in MODELS.items()}
        self._settler = Settler(self.metrics.unnamed)

    async def _nothing(self, *_: object) -> None:
        pass

    def infer(self, request: InferRequest, version: str | None = None) -> None:
        if request.model not in MODELS or version not in (None, "1"):
            raise NotFound(f"no model is called {request.model!r}")
        self._validators[request.model](request)
        for tensor in request.inputs:
            arrays.read(Placement(tensor.name, tensor.datatype, tensor.shape, 0, len(tensor.data)), memoryview(bytearray(tensor.data)))
        asyncio.get_running_loop().call_soon(self._answer, request)

    def _answer(self, request: InferRequest) -> None:
        outputs = [Tensor(one.name, one.datatype, one.shape, memoryview(bytes(one.data))) for one in request.inputs]
        self._settler.answer(request, outputs, 0.001)


_tasks: set[asyncio.Task[None]] = set()


def _spawn(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _break(connection: Connection, head: Head, body: Buffer) -> None:
    raise KeyError("a fault of ours")


def _size(connection: Connection, head: Head, body: Buffer) -> None:
    connection.respond_json(b"%d" % len(body))


@cache
def _router() -> Router:
    """All routes, one that breaks and one that counts."""
    more = [Entry("GET", "/broken", None, "oip", _break, ""), Entry("POST", "/size", None, "oip", _size, "")]
    return Router([*more, *described(table(EchoEngine(), _spawn), secured=False)])


class Edge:
    """What all connections of a server have in common. `calls` counts what got as far as a handler, `faults` what got to the one that breaks."""

    def __init__(self) -> None:
        self.calls = self.faults = 0
        self.shared = Shared(self._find, LIMIT, Patience())

    def _find(self, method: str, path: str, headers: Mapping[str, str]) -> Route:
        route = _router().find(method, path, headers)
        if route.refusal is not None:
            return route

        def counted(connection: Connection, head: Head, body: Buffer) -> None:
            self.calls += 1
            self.faults += route.handler is _break
            route.handler(connection, head, body)

        return route._replace(handler=counted)


class Transport:
    """What a connection needs of uvloop's transport. Feeds whichever protocol is set, while it is read."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.protocol: Any = None
        self.closed = self.paused = self.half_closed = False
        self._coming = b""

    def feed(self, data: bytes) -> None:
        self._coming += data
        self._deliver()

    def _deliver(self) -> None:
        while self._coming and not self.closed and not self.paused:
            if isinstance(self.protocol, asyncio.BufferedProtocol):
                buffer: Any = self.protocol.get_buffer(-1)
                count = min(len(buffer), len(self._coming))
                assert count > 0
                buffer[:count] = self._coming[:count]
                self._coming = self._coming[count:]
                self.protocol.buffer_updated(count)
            else:
                received, self._coming = self._coming[:RECEIVED], self._coming[RECEIVED:]
                self.protocol.data_received(received)

    @property
    def holds_back(self) -> bool:
        return bool(self._coming) and not self.closed

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
        asyncio.get_running_loop().call_soon(self._deliver)

    def write_eof(self) -> None:
        self.half_closed = True

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0


def check_bounds(connection: Connection) -> None:
    """What a client makes a connection hold is bounded, whatever it sends."""
    assert len(connection._buffer) <= AHEAD_LIMIT + RECEIVED
    assert len(connection._shared.heads) <= REMEMBERED
    chunks = connection._chunks
    if chunks is not None:
        assert len(chunks.body) <= LIMIT
        assert len(chunks._line) <= ChunkedBody.LINE_LIMIT + RECEIVED


async def play(edge: Edge, parts: list[bytes], ends: bool) -> list[bytes]:
    """What a connection answers that receives these parts. `ends`: the client closes its half then."""
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    connection, transport = Connection(edge.shared), Transport()
    transport.protocol = connection
    connection.connection_made(transport)  # type: ignore[arg-type]  # a fake at the border
    for part in parts:
        transport.feed(part)
        await asyncio.sleep(0)
        check_bounds(connection)
    await _calm(connection, transport)
    if ends and not transport.closed and not transport.protocol.eof_received():
        transport.close()
    await _calm(connection, transport)
    check_bounds(connection)
    transport.protocol.connection_lost(None)
    assert not edge.shared.connections
    assert faults == []
    return transport.sent


async def _calm(connection: Connection, transport: Transport) -> None:
    """Until everything is answered that can be. Some bodies are inflated in a thread; the limit only ends what would hang."""
    still = turns = 0
    while still < TURNS:
        moving = connection.busy or (transport.holds_back and not transport.paused)
        still = 0 if moving else still + 1
        turns += 1
        assert turns < 20_000
        await asyncio.sleep(0.001 if turns > 10 * TURNS else 0)


def heads(sent: list[bytes]) -> list[bytes]:
    return [part for part in sent if part.startswith(b"HTTP/1.1 ") and part != CONTINUE]


def statuses(sent: list[bytes]) -> list[int]:
    return [int(head[9:12]) for head in heads(sent)]
