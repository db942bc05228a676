"""gRPC by pygrpc-native: HTTP/2 in threads outside the GIL, and calls as events, by the dozen, in the loop. No coroutine and no task for a call.

It knows no TLS and no streams of requests; the latter it hands to a grpcio server behind a Unix socket that needs no file. It takes a message of any
size before anybody here sees it, so what is larger than allowed is refused after it has come.
"""

import asyncio
import secrets
import threading
from collections.abc import Sequence
from typing import Any

from pygrpc_native import EVENT_CANCEL, NativeGrpcFront

from wakeful.frontends.grpc.aio import AioFront
from wakeful.frontends.grpc.call import Call, Method, Sent, Take
from wakeful.frontends.grpc.errors import Code, Metadata

AT_ONCE = 64
"""Events in one turn of the loop at most."""
THREADS = 1
"""For HTTP/2: the loop is the bottleneck, and each more takes from the models."""


class NativeFront:
    library = "pygrpc-native"

    def __init__(self, methods: Sequence[Method], take: Take, max_message: int, patience: float) -> None:
        self._methods = [method for method in methods if method.kind != "stream"]
        self._counted = {method.path for method in self._methods if method.kind == "unary" and method.role is not None}
        self._take = take
        self._streams = AioFront([method for method in methods if method.kind == "stream"], take, max_message, patience)
        self._calls: dict[int, _NativeCall] = {}
        self._front: NativeGrpcFront
        self._loop: asyncio.AbstractEventLoop

    async def start(self, address: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._front = NativeGrpcFront(
            address, [(method.path, method.kind == "answers") for method in self._methods], io_threads=THREADS, call_details=True,
            delay_stream_headers=True, metrics=True,
        )
        name = f"wakeful-{secrets.token_hex(16)}"
        await self._streams.start(f"unix-abstract:{name}")
        self._front.set_fallback(f"\0{name}")  # what a name without a file begins with
        self._front.start()
        threading.Thread(target=self._receive, name="grpc", daemon=True).start()

    def _receive(self) -> None:
        front, call_soon, happened = self._front, self._loop.call_soon_threadsafe, self._happened
        while (events := front.recv_batch_details(AT_ONCE)) is not None:
            call_soon(happened, events)

    def _happened(self, events: list[tuple[Any, ...]]) -> None:
        for kind, number, index, message, _, details in events:
            if kind == EVENT_CANCEL:
                call = self._calls.pop(number, None)
                if call is not None:
                    call.leave()
            else:
                metadata, _, seconds = details
                call = self._calls[number] = _NativeCall(self._methods[index], metadata, seconds, self._front, self._calls, number)
                self._take(call, message)

    @property
    def busy(self) -> int:
        """Calls of models that are on their way in, not answered, or whose answers are on their way out."""
        methods: dict[str, Any] = (self._front.metrics() or {})["methods"]
        busy = self._streams.busy
        for path in self._counted:
            busy += methods[path]["started"] - sum(status["count"] for status in methods[path]["status"].values())
        return busy

    def close_listeners(self) -> None:
        """It cannot close them and go on; calls that come are refused at the door."""
        self._streams.close_listeners()

    async def close(self) -> None:
        await self._streams.close()
        await asyncio.to_thread(self._front.close)


class _NativeCall(Call):
    __slots__ = ("_calls", "_front", "_number")

    def __init__(
        self, method: Method, metadata: Sent, seconds: float | None, front: NativeGrpcFront, calls: "dict[int, _NativeCall]", number: int
    ) -> None:
        super().__init__(method, metadata, seconds)
        self._front = front
        self._calls = calls
        self._number = number

    def respond(self, message: bytes) -> None:
        self._calls.pop(self._number, None)
        self._front.respond(self._number, message)

    def send(self, message: bytes) -> None:
        self._front.stream_try_send(self._number, message)  # if its caller takes nothing, it is not told

    def end(self, code: Code, text: str, metadata: Metadata) -> None:
        self._calls.pop(self._number, None)
        if code == Code.OK:
            self._front.stream_end(self._number, metadata)
        else:
            self._front.fail(self._number, code, text, metadata)
