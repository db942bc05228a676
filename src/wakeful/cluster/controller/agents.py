"""The controller's side of its two services: agents attend, and gateways ask to wake a model. What the messages mean is the loop's to know.

An agent is told what it is to have, with a version; later only what has changed since. Nothing is queued for an agent that does not read: what it is
to have is replaced, and what it has been told is compared with that when it reads again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import grpc
import msgspec

from wakeful import __version__
from wakeful.cluster.wire import (
    ATTEND,
    MODELS,
    PROTOCOL,
    WAKE,
    Adopt,
    Desired,
    DrainAsked,
    FromAgent,
    Hello,
    ModelsTold,
    Refused,
    Released,
    Report,
    ToAgent,
    Trigger,
    WakeAsk,
    WakeTold,
    Wanted,
)

HELLO_WITHIN = 10.0
"""Seconds in which an agent has to say who it is."""
OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # what counts where pings are not answered, and is a minute else
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)
"""Of the controller's gRPC server. A peer that is frozen, or whose node has gone, is noticed within 20 s."""

_encode = msgspec.msgpack.Encoder().encode
_from_agent = msgspec.msgpack.Decoder(FromAgent)
_from_gateway = msgspec.msgpack.Decoder(WakeAsk)


class Listener(Protocol):
    """Who is told what agents say. Nothing here waits."""

    def hello(self, hello: Hello) -> None: ...

    def report(self, uid: str, report: Report) -> None: ...

    def trigger(self, uid: str, trigger: Trigger) -> None: ...

    def drain_asked(self, uid: str) -> None: ...

    def silent(self, uid: str) -> None:
        """Its stream has ended."""


class Waker(Protocol):
    """Who is asked by gateways."""

    opened: asyncio.Event
    """It knows what there is."""

    def models(self) -> ModelsTold: ...

    def wake(self, model: str) -> WakeTold:
        """A request is held for the model: see that it wakes, and say how far it is."""

    def changed(self, model: str) -> Awaitable[None]:
        """When another answer of `wake` may be had."""


class _Stream:
    """One agent's. What it is told follows from `wanted`, which the loop sets."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.wanted: Mapping[str, Wanted] | None = None
        """None: not known yet, so that nothing is said of it."""
        self.version = 0
        """Of `wanted`."""
        self.released = False
        self.ended = False
        self.news = asyncio.Event()
        self._told: Mapping[str, Wanted] = {}
        self._version_told = 0
        self._released_told = False

    def begin_anew(self) -> None:
        """The agent has lost count: the next thing that it is told is everything."""
        self._version_told, self._told = 0, {}
        self.news.set()

    def messages(self, epoch: int) -> list[ToAgent]:
        """What to send now."""
        news: list[ToAgent] = []
        if self.wanted is not None and self.version != self._version_told:
            changed = {name: one for name, one in self.wanted.items() if self._told.get(name) != one}
            gone = [name for name in self._told if name not in self.wanted]
            news.append(Desired(epoch, self.version, self._version_told, changed, gone))
            self._version_told, self._told = self.version, self.wanted
        if self.released and not self._released_told:
            self._released_told = True
            news.append(Released())
        return news


class Agents(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio ships no types
    """The service `wakeful.cluster.v1.Controller`, to be added to a grpc.aio server."""

    def __init__(self, epoch: int, listener: Listener, waker: Waker, identify: Callable[[Hello], Awaitable[str]]) -> None:
        """`identify` tells why an agent is not who it says; empty: it is."""
        self._epoch, self._listener, self._waker, self._identify = epoch, listener, waker, identify
        self._streams: dict[str, _Stream] = {}
        attend = grpc.stream_stream_rpc_method_handler(self._attend)
        wake = grpc.unary_stream_rpc_method_handler(self._wake)
        models = grpc.unary_unary_rpc_method_handler(self._models)
        self._handlers = {ATTEND: attend, WAKE: wake, MODELS: models}

    def service(self, details: Any) -> Any:
        return self._handlers.get(details.method)

    @property
    def connected(self) -> int:
        return len(self._streams)

    def want(self, uid: str, models: Mapping[str, Wanted], version: int) -> None:
        """What a replica is to have, all of it. `models` must not be changed any more; each call has another `version` above 0."""
        if (stream := self._streams.get(uid)) is not None:
            stream.wanted, stream.version = models, version
            stream.news.set()

    def release(self, uid: str) -> None:
        """Its PreStop may return."""
        if (stream := self._streams.get(uid)) is not None:
            stream.released = True
            stream.news.set()

    # ── agents ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _attend(self, requests: AsyncIterator[bytes], context: Any) -> None:
        try:
            async with asyncio.timeout(HELLO_WITHIN):
                hello = _from_agent.decode(await anext(requests))
                why = await self._refusal(hello)
        except TimeoutError:
            why = f"no Hello came in {HELLO_WITHIN:g} s"
        except StopAsyncIteration:
            return
        except msgspec.MsgspecError as error:
            why = f"the first message cannot be read: {error}"
        if why:
            await context.write(_encode(Refused(why)))
            return
        assert isinstance(hello, Hello)
        stream = self._replace(hello.uid)
        try:
            await context.write(_encode(Adopt(self._epoch, PROTOCOL)))
            self._listener.hello(hello)
            await self._converse(stream, requests, context)
        finally:
            if self._streams.get(stream.uid) is stream:
                del self._streams[stream.uid]
                self._listener.silent(stream.uid)

    async def _converse(self, stream: _Stream, requests: AsyncIterator[bytes], context: Any) -> None:
        """Tell and hear, until the agent has ended the stream, or another one of the same pod has come."""
        hearing = asyncio.create_task(self._hear(stream, requests))
        hearing.add_done_callback(lambda _: stream.news.set())
        try:
            while not hearing.done() and not stream.ended:
                await stream.news.wait()
                stream.news.clear()
                for message in stream.messages(self._epoch):
                    await context.write(_encode(message))
            if hearing.done() and isinstance(error := hearing.exception(), msgspec.MsgspecError):
                await context.write(_encode(Refused(f"a message cannot be read: {error}")))
        finally:
            hearing.cancel()

    async def _refusal(self, hello: FromAgent) -> str:
        if not isinstance(hello, Hello):
            return f"the first message is to be a Hello, and is a {type(hello).__name__}"
        if abs(hello.protocol - PROTOCOL) > 1:
            both = f"the agent ({hello.version}) speaks protocol {hello.protocol}, and this controller ({__version__}) {PROTOCOL}"
            return f"{both}: they may differ by one"
        if hello.epoch > self._epoch:
            return f"the agent has obeyed epoch {hello.epoch}, and this controller leads in {self._epoch}: another one leads now"
        return await self._identify(hello)

    def _replace(self, uid: str) -> _Stream:
        """The pod's only stream: one that it had before has ended, whether its end was noticed or not."""
        if (old := self._streams.get(uid)) is not None:
            old.ended = True
            old.news.set()
        stream = self._streams[uid] = _Stream(uid)
        return stream

    async def _hear(self, stream: _Stream, requests: AsyncIterator[bytes]) -> None:
        async for data in requests:
            message = _from_agent.decode(data)
            if stream.ended:
                return
            match message:
                case Report():
                    self._listener.report(stream.uid, message)
                case Trigger():
                    self._listener.trigger(stream.uid, message)
                case DrainAsked():
                    self._listener.drain_asked(stream.uid)
                case Hello():
                    if message.uid != stream.uid:
                        raise msgspec.ValidationError(f"the stream is {stream.uid}'s, and the Hello {message.uid}'s")
                    stream.begin_anew()
                    self._listener.hello(message)

    # ── gateways ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _wake(self, request: bytes, context: Any) -> None:
        try:
            model = _from_gateway.decode(request).model
        except msgspec.MsgspecError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{error}")
        told = None
        if not self._waker.opened.is_set():
            await context.write(_encode(told := WakeTold("waking")))
            await self._waker.opened.wait()
        while True:
            changed = self._waker.changed(model)
            now = self._waker.wake(model)
            if now != told:
                told = now
                await context.write(_encode(told))
            if told.state != "waking":
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(told.hold or 1.0):
                    await changed

    async def _models(self, request: bytes, context: Any) -> bytes:
        if not self._waker.opened.is_set():
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "it leads since a moment ago, and learns how things stand")
        return _encode(self._waker.models())
