"""Holds requests until the controller says that their model is routed: carries out what `hold` decides."""

import asyncio
import itertools

import grpc
import msgspec

from wakeful.clock import Clock, monotonic
from wakeful.cluster.gateway.hold import Ask, Effect, Held, Leave, Refuse, Send
from wakeful.cluster.gateway.line import Line
from wakeful.cluster.wire import WAKE, WakeAsk, WakeTold

_encode = msgspec.msgpack.Encoder().encode
_told = msgspec.msgpack.Decoder(WakeTold)
ASK = 3600.0
"""Seconds that one call may take; the controller answers a wake within a model's holdSeconds, and is asked again."""


class Waker:
    """One call a model, however many wait."""

    def __init__(self, line: Line, tasks: asyncio.TaskGroup, held: Held, now: Clock = monotonic) -> None:
        self._line = line
        self._tasks, self._held, self._now = tasks, held, now
        self._tickets = itertools.count()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def routed(self, model: str) -> None:
        """Return when requests for the model have somewhere to go. Raises the WakefulError that its caller is to have."""
        ticket = next(self._tickets)
        waiting = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._do(self._held.arrive(ticket, model, self._now()))
        try:
            await waiting
        finally:
            del self._waiting[ticket]
            self._do(self._held.leave(ticket, model))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Ask(model, after):
                    self._asking[model] = self._tasks.create_task(self._ask(model, after))
                case Leave(model):
                    self._asking.pop(model).cancel()
                case Send(ticket):
                    if not (waiting := self._waiting[ticket]).done():  # else its caller is just leaving
                        waiting.set_result(None)
                case Refuse(ticket, error):
                    if not (waiting := self._waiting[ticket]).done():
                        waiting.set_exception(error)
        if self._timer is not None:
            self._timer.cancel()
        due = self._held.next_deadline()
        self._timer = None if due is None else asyncio.get_running_loop().call_later(max(due - self._now(), 0.0), self._tick)

    def _tick(self) -> None:
        self._do(self._held.tick(self._now()))

    async def _ask(self, model: str, after: float) -> None:
        await asyncio.sleep(after)
        channel = self._line.channel
        call = channel.unary_stream(WAKE)(_encode(WakeAsk(model)), timeout=ASK)
        why = "its answer ended early"
        try:
            async for data in call:
                told = _told.decode(data)
                self._do(self._held.told(model, told, self._now()))
                if told.state != "waking":
                    self._asking.pop(model, None)
                    return
        except grpc.aio.AioRpcError as error:
            why = f"{error.code().name}: {error.details()}"
        except msgspec.MsgspecError as error:
            why = f"its answer cannot be read: {error}"
        finally:
            call.cancel()
        self._do(self._held.broken(model, why))
        await self._line.replace(channel)
