"""Which models there are, as the controller says. It is asked at most once a second, however many want to know."""

import asyncio

import grpc
import msgspec

from wakeful.clock import Clock, monotonic
from wakeful.cluster.gateway.line import Line
from wakeful.cluster.wire import MODELS, ModelsAsk, ModelsTold
from wakeful.errors import Unavailable

FRESH = 1.0
"""Seconds that an answer counts for."""
PATIENCE = 5.0
"""Seconds in which one of the controllers has to answer."""
ONE_TRY, PAUSE = 2.0, 0.2
"""Seconds for one of them, and between two."""
LATER = 5.0

_ASKED = msgspec.msgpack.encode(ModelsAsk())
_told = msgspec.msgpack.Decoder(ModelsTold)


class Catalog:
    def __init__(self, line: Line, tasks: asyncio.TaskGroup, controllers: str, now: Clock = monotonic) -> None:
        """`controllers`: their names, for callers who cannot be answered. The line is its own: a wake must not end because a list was slow."""
        self._line, self._tasks, self._controllers, self._now = line, tasks, controllers, now
        self._asking: asyncio.Task[ModelsTold | Unavailable] | None = None
        self._told: ModelsTold | None = None
        self._fresh_until = 0.0

    async def models(self) -> ModelsTold:
        """Raises Unavailable where no leader answers."""
        if self._told is not None and self._now() < self._fresh_until:
            return self._told
        if self._asking is None:
            self._asking = self._tasks.create_task(self._ask())
        told = await asyncio.shield(self._asking)
        if isinstance(told, Unavailable):
            raise Unavailable(told.message, retry_after=told.retry_after)  # each caller has one of its own
        return told

    async def _ask(self) -> ModelsTold | Unavailable:
        began = self._now()
        try:
            while True:
                told = await self._try()
                if isinstance(told, ModelsTold):
                    self._told, self._fresh_until = told, self._now() + FRESH
                    return told
                if self._now() - began + PAUSE >= PATIENCE:
                    return Unavailable(f"the controller ({self._controllers}) does not say which models there are: {told}", retry_after=LATER)
                await asyncio.sleep(PAUSE)
        finally:
            self._asking = None

    async def _try(self) -> ModelsTold | str:
        """What one of the controllers says, or why none."""
        channel = self._line.channel
        try:
            return _told.decode(await channel.unary_unary(MODELS)(_ASKED, timeout=ONE_TRY))
        except msgspec.MsgspecError as error:
            return f"its answer cannot be read: {error}"
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                await self._line.replace(channel)
            return f"{error.code().name}: {error.details()}"
