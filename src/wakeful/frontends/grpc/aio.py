"""gRPC by grpcio: where TLS is asked for, where pygrpc-native is not to be had, and for streams of requests. Each call waits in a coroutine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc
import grpc.aio

from wakeful.errors import Unavailable
from wakeful.frontends.grpc import oip
from wakeful.frontends.grpc.call import Call, Method, Sent, Take
from wakeful.frontends.grpc.errors import Code, Metadata, render
from wakeful.frontends.tls import Certificate

AHEAD = 64
"""Requests of one stream that are taken before the first of them is answered; but for the last, they are no larger together than one may be."""
SLOWEST = 256 << 10
"""Bytes a second, at which a large answer of a stream has more time."""
STATUS = {status.value[0]: status for status in grpc.StatusCode}
LAST_SECONDS = 1.0
"""For answers to go out, when it closes."""


class End(NamedTuple):
    code: Code
    text: str
    metadata: Metadata


class AioFront:
    library = "grpcio"

    def __init__(self, methods: Sequence[Method], take: Take, max_message: int, patience: float, certificate: Certificate | None = None) -> None:
        """`patience`: seconds for a caller to take an answer of a stream. pygrpc-native, which hands streams on, does not tell of one that leaves
        while an answer is on its way."""
        self._methods = {method.path: method for method in methods}
        self._take = take
        self._certificate = certificate
        self._max_message = max_message
        self._patience = patience
        self._server: grpc.aio.Server
        self._unanswered: set[Call] = set()
        self._readers: set[asyncio.Task[None]] = set()
        self._watching: set[Call] = set()

    async def start(self, address: str) -> None:
        self._server = grpc.aio.server(handlers=[_Handlers(self._handler)], options=[
            ("grpc.max_receive_message_length", self._max_message), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0),
            ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.min_ping_interval_without_data_ms", 5000),
        ])
        if self._certificate is None:
            self._server.add_insecure_port(address)
        else:
            self._server.add_secure_port(address, _credentials(self._certificate))
        await self._server.start()

    @property
    def busy(self) -> int:
        """Calls of models that are not answered."""
        return len(self._unanswered)

    def close_listeners(self) -> None:
        """Read no further requests of streams, and tell nothing more to who watches; new calls are refused at the door."""
        for reader in self._readers:
            reader.cancel()
        for call in self._watching:
            call.end(Code.UNAVAILABLE, "the server is stopping", ())

    async def close(self) -> None:
        await self._server.stop(LAST_SECONDS)

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _handler(self, path: str) -> Any:
        method = self._methods.get(path)
        if method is None:
            return None

        async def unary(message: bytes, context: Any) -> bytes:
            call = AioCall(method, context.invocation_metadata(), context.time_remaining())
            with self._under_way(call, counted=method.role is not None):
                self._take(call, message)
                outcome = await call.outbox.get()
            if not isinstance(outcome, End):
                return outcome
            return await context.abort(STATUS[outcome.code], outcome.text, outcome.metadata)  # type: ignore[no-any-return]  # it raises

        async def answers(message: bytes, context: Any) -> None:
            call = AioCall(method, context.invocation_metadata(), context.time_remaining())
            self._watching.add(call)
            try:
                with self._under_way(call, counted=False):
                    self._take(call, message)
                    while not isinstance(outcome := await call.outbox.get(), End):
                        await context.write(outcome)
            finally:
                self._watching.discard(call)
            if outcome.code != Code.OK:
                await context.abort(STATUS[outcome.code], outcome.text, outcome.metadata)

        async def stream(messages: AsyncIterator[bytes], context: Any) -> None:
            await self._converse(method, messages, context)

        if method.kind == "stream":
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_stream_rpc_method_handler(answers) if method.kind == "answers" else grpc.unary_unary_rpc_method_handler(unary)

    async def _converse(self, method: Method, messages: AsyncIterator[bytes], context: Any) -> None:
        """Take the requests of a stream as they come, and answer in their order."""
        room, waiting = Room(self._max_message), asyncio.Queue[StreamedCall | None]()

        ended = False  # by its caller

        async def read() -> None:
            nonlocal ended
            try:
                async for message in messages:
                    call = StreamedCall(method, context.invocation_metadata(), context.time_remaining(), len(message))
                    self._unanswered.add(call)
                    waiting.put_nowait(call)
                    self._take(call, message)
                    await room.take(len(message))
                ended = True
            finally:
                waiting.put_nowait(None)

        end: End | None = None
        left = False
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(read())
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)
            try:
                while (call := await waiting.get()) is not None:
                    with self._under_way(call, counted=True):
                        outcome = await call.outbox.get()
                    if isinstance(outcome, End):
                        end = outcome
                        break
                    if left := not await self._written(context, outcome):
                        break
                    room.give(call.size)
            finally:
                reader.cancel()
                while not waiting.empty():
                    if (call := waiting.get_nowait()) is not None:
                        self._unanswered.discard(call)
                        call.leave()
        if left:
            raise asyncio.CancelledError  # as grpcio tells of it elsewhere
        if end is None and not ended:  # the server is stopping, and what the caller has sent meanwhile is not read
            end = End(*render(Unavailable("the server is stopping", unstarted=True), method.dialect))
        if end is not None:
            await context.abort(STATUS[end.code], end.text, end.metadata)

    async def _written(self, context: Any, answer: bytes) -> bool:
        """False: the caller has left, or takes nothing."""
        try:
            async with asyncio.timeout(self._patience + len(answer) / SLOWEST):
                await context.write(answer)
        except (TimeoutError, grpc.aio.InternalError):
            return False
        return True

    @contextmanager
    def _under_way(self, call: "AioCall", *, counted: bool) -> Iterator[None]:
        """While a call waits for its answer. If that ends otherwise, its caller has left."""
        if counted:
            self._unanswered.add(call)
        try:
            yield
        except BaseException:
            call.leave()
            raise
        finally:
            self._unanswered.discard(call)


class Room:
    """For the requests of one stream that are not answered."""

    def __init__(self, size: int) -> None:
        self._requests = AHEAD
        self._bytes = size
        self._given = asyncio.Event()

    async def take(self, size: int) -> None:
        """Waits until there is room for one more."""
        self._requests -= 1
        self._bytes -= size
        while self._requests < 0 or self._bytes < 0:
            self._given.clear()
            await self._given.wait()

    def give(self, size: int) -> None:
        self._requests += 1
        self._bytes += size
        self._given.set()


class AioCall(Call):
    __slots__ = ("outbox",)

    def __init__(self, method: Method, metadata: Sent, seconds: float | None) -> None:
        super().__init__(method, metadata, seconds)
        self.outbox: asyncio.Queue[bytes | End] = asyncio.Queue()

    def respond(self, message: bytes) -> None:
        self.outbox.put_nowait(message)

    def send(self, message: bytes) -> None:
        self.outbox.put_nowait(message)

    def end(self, code: Code, text: str, metadata: Metadata) -> None:
        self.outbox.put_nowait(End(code, text, metadata))


class StreamedCall(AioCall):
    """One request of a stream. Its error is an answer of the stream, unless it is about the caller: then it is the end."""

    __slots__ = ("size",)

    def __init__(self, method: Method, metadata: Sent, seconds: float | None, size: int) -> None:
        super().__init__(method, metadata, seconds)
        self.size = size
        """Bytes of its message."""

    def respond(self, message: bytes) -> None:
        self.outbox.put_nowait(oip.streamed(message))

    def end(self, code: Code, text: str, metadata: Metadata) -> None:
        if code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
            super().end(code, text, metadata)
        else:
            self.outbox.put_nowait(oip.streamed_error(text, self.waiter.id if self.waiter is not None else ""))


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio ships no types
    def __init__(self, find: Callable[[str], Any]) -> None:
        self._find = find

    def service(self, handler_call_details: Any) -> Any:
        return self._find(handler_call_details.method)


def _credentials(certificate: Certificate) -> Any:
    """Each handshake goes over to the certificate of the day."""
    shown = certificate.pem

    def configuration(key: bytes, chain: bytes) -> Any:
        return grpc.ssl_server_certificate_configuration([(key, chain)])

    def renewed() -> Any:
        nonlocal shown
        if certificate.pem is shown:
            return None
        shown = certificate.pem
        return configuration(*shown)

    return grpc.dynamic_ssl_server_credentials(configuration(*shown), renewed)
