"""The stream to whichever controller leads: found among all addresses, held, and made anew when it ends."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec

from wakeful.cluster.wire import ATTEND, FromAgent, Hello, Refused, ToAgent
from wakeful.telemetry.events import Events

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
"""For the answer to Hello."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between two rounds over all addresses. A leader is found within seconds of its election."""
OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # a controller that stands still keeps its connections, and gRPC itself would wait a minute
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel would wait out the pauses of the one before
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.enable_retries", 0),
)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder[ToAgent](ToAgent).decode


class Hangup(Exception):
    """Nothing more is taken from this controller. Says why."""


def pause(rounds: int, chance: float) -> float:
    """Seconds before the next round, after so many in vain. `chance`: 0 to 1, so that agents do not come all at once."""
    return min(LONGEST_PAUSE, SHORTEST_PAUSE * float(1 << min(rounds, 10))) * (0.5 + 0.5 * chance)


class Link:
    """`hello` says who this is; `take` is given what comes, and raises Hangup; `news` is asked for what there is to say whenever `wake` is set."""

    def __init__(
        self, addresses: Sequence[str], ca_file: Path | None, hello: Callable[[], Hello], take: Callable[[ToAgent], None],
        news: Callable[[], list[FromAgent]], events: Events,
    ) -> None:
        self.wake = asyncio.Event()
        self.connected = False
        """Does a leader listen?"""
        self._addresses = addresses
        self._ca_file = ca_file
        self._hello = hello
        self._take = take
        self._news = news
        self._events = events
        self._told = ""

    async def run(self) -> None:
        rounds = 0
        while True:
            for address in self._addresses:
                try:
                    await self._attend(address)
                    rounds = 0
                except (Hangup, grpc.aio.AioRpcError, grpc.RpcError, msgspec.MsgspecError, OSError, TimeoutError, asyncio.InvalidStateError) as error:
                    if self.connected:
                        rounds = 0
                    self._lost(address, error)
                finally:
                    self.connected = False
            await asyncio.sleep(pause(rounds, random.random()))
            rounds += 1

    def _lost(self, address: str, error: Exception) -> None:
        """A stream that was there is worth a line, and so is a controller that does not want us; an address where nobody listens is the standby's."""
        why = _words(error)
        if self.connected or (isinstance(error, Hangup) and why != self._told):
            self._events.emit("cluster", "", f"the controller at {address} is lost, and what is served stays: {why}", code="lost")
            self._told = why

    async def _attend(self, address: str) -> None:
        """One stream, until it ends. Raises why."""
        async with self._call(address) as call:
            async with asyncio.timeout(ANSWER_SECONDS):
                await call.write(_encode(self._hello()))
                self._take(await _next(call))
            self.connected = True
            self._events.emit("cluster", "", f"the controller at {address} leads", code="found")
            both = [asyncio.ensure_future(self._read(call)), asyncio.ensure_future(self._write(call))]
            try:
                await asyncio.gather(*both)
            finally:
                for one in both:
                    one.cancel()

    @asynccontextmanager
    async def _call(self, address: str) -> AsyncIterator[Any]:
        if self._ca_file is None:
            channel = grpc.aio.insecure_channel(address, OPTIONS)
        else:
            roots = await asyncio.to_thread(self._ca_file.read_bytes)
            channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(roots), OPTIONS)
        call = channel.stream_stream(ATTEND)()
        try:
            yield call
        finally:
            call.cancel()
            await channel.close()

    async def _read(self, call: Any) -> None:
        while True:
            self._take(await _next(call))

    async def _write(self, call: Any) -> None:
        """A peer that does not read holds this up, and meanwhile only the newest state counts."""
        self.wake.set()
        while True:
            await self.wake.wait()
            self.wake.clear()
            for message in self._news():
                await call.write(_encode(message))


async def _next(call: Any) -> ToAgent:
    data = await call.read()
    if data is grpc.aio.EOF:
        raise Hangup(f"it has ended the stream: {(await call.details()) or (await call.code()).name}")
    message = _decode(data)
    if isinstance(message, Refused):
        raise Hangup(f"refused: {message.why}")
    return message


def _words(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return str(error.details() or error.code().name)
    return str(error) or type(error).__name__
