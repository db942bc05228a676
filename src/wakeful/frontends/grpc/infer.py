"""Inference over gRPC, in both dialects: decode, one engine verb, encode. Nothing here waits, but for what takes long to decode."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from wakeful.clock import monotonic
from wakeful.engine import Engine
from wakeful.errors import WakefulError
from wakeful.frontends.grpc import oip, snooze
from wakeful.frontends.grpc.call import Call
from wakeful.frontends.grpc.oip import Infer as OipInfer
from wakeful.frontends.grpc.snooze import Infer as SnoozeInfer
from wakeful.inference import InferRequest
from wakeful.tensors import Tensor

OIP, SNOOZE = "oip-grpc", "snooze-grpc"
"""Protocols, for the counters."""
DECODED_HERE = 1 << 20
"""Bytes of a message that take the loop a few milliseconds at most. More is decoded in a thread."""

Spawn = Callable[[Coroutine[Any, Any, None]], Any]
Decoded = TypeVar("Decoded")


class GrpcRequest(InferRequest, kw_only=True):
    """A request whose answer goes to a call. An output that the dialect cannot carry becomes its error."""

    call: Call

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        try:
            encoded = self.encode(outputs)
        except WakefulError as error:
            self.call.fail(error)
        else:
            self.call.respond(encoded)
            self.call.waiter = None

    def encode(self, outputs: Sequence[Tensor]) -> bytes:
        raise NotImplementedError

    def refuse(self, error: WakefulError) -> None:
        self.call.fail(error)


class OipRequest(GrpcRequest, kw_only=True):
    def encode(self, outputs: Sequence[Tensor]) -> bytes:
        return oip.encode_infer(self.model, self.version, self.id, outputs)


class SnoozeRequest(GrpcRequest, kw_only=True):
    def encode(self, outputs: Sequence[Tensor]) -> bytes:
        return snooze.encode_infer(self.model, outputs, 1000 * (monotonic() - self.arrived))


class InferHandlers:
    def __init__(self, engine: Engine, spawn: Spawn) -> None:
        self._engine = engine
        self._spawn = spawn

    def oip(self, call: Call, message: bytes) -> None:
        arrived = monotonic()
        if len(message) > DECODED_HERE:
            self._spawn(self._elsewhere(call, partial(oip.decode_infer, message), partial(self._oip, call, arrived)))
        else:
            self._oip(call, arrived, partial(oip.decode_infer, message))

    def snooze(self, call: Call, message: bytes) -> None:
        arrived = monotonic()
        if len(message) > DECODED_HERE:
            self._spawn(self._elsewhere(call, partial(snooze.decode_infer, message), partial(self._snooze, call, arrived)))
        else:
            self._snooze(call, arrived, partial(snooze.decode_infer, message))

    async def _elsewhere(self, call: Call, decode: Callable[[], Decoded], go_on: Callable[[Callable[[], Decoded]], None]) -> None:
        """Decode in a thread. `go_on` gets what gives the result or raises its error, unless the caller has left meanwhile."""
        decoding = asyncio.get_running_loop().run_in_executor(None, decode)
        await asyncio.wait([decoding])
        if call.gone:
            return
        try:
            go_on(decoding.result)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears of it, and the log if it is a fault of ours
            call.fail(error)
            error.__traceback__ = None  # it leads to what holds the error, and to the message: they would wait for the garbage collector

    def _oip(self, call: Call, arrived: float, decoded: Callable[[], OipInfer]) -> None:
        try:
            head, id, inputs = decoded()
        except WakefulError as error:
            self._engine.refused("", OIP, error, monotonic() - arrived)
            raise
        deadline = call.deadline if head.timeout is None else min(call.deadline, arrived + head.timeout / 1e6)
        call.waiter = request = OipRequest(
            head.model, inputs, arrived, deadline, head.outputs, id, head.parameters, False, OIP, call=call,
        )
        self._engine.infer(request, head.version)

    def _snooze(self, call: Call, arrived: float, decoded: Callable[[], SnoozeInfer]) -> None:
        try:
            model, inputs, timeout = decoded()
        except WakefulError as error:
            self._engine.refused("", SNOOZE, error, monotonic() - arrived)
            raise
        deadline = call.deadline if timeout is None else min(call.deadline, arrived + timeout / 1e3)
        call.waiter = request = SnoozeRequest(model, inputs, arrived, deadline, coerce=True, protocol=SNOOZE, call=call)
        self._engine.infer(request)
