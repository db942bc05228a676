"""One caller's wish that takes many requests: they are queued a few at a time, and whoever leaves or fails ends them all."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from wakeful.clock import monotonic
from wakeful.engine import Engine
from wakeful.errors import InvalidInput, Overloaded, WakefulError
from wakeful.inference import FOREVER, InferRequest
from wakeful.tensors import Tensor

AT_ONCE = 128
"""Requests of one call that wait or run. More would keep others from the queue; with fewer, runs of several replicas would not be full."""


class Call:
    """Belongs to its front end. Setting `left` ends it: nobody waits for the answer any more."""

    def __init__(self, engine: Engine, model: str, protocol: str, arrived: float) -> None:
        self.model = model
        self.protocol = protocol
        self.arrived = arrived
        """Monotonic seconds."""
        self.deadline = FOREVER
        self._engine = engine
        self._left = False
        self._future: asyncio.Future[None] | None = None

    @property
    def left(self) -> bool:
        return self._left

    @left.setter
    def left(self, left: bool) -> None:
        self._left = left
        if left and self._future is not None:
            self._future.cancel()

    async def run(self, pieces: Sequence["Piece"]) -> None:
        """Have all of them answered. Raises the error of the first that is refused; nothing comes of the others then."""
        self._future = asyncio.get_running_loop().create_future()
        if self._left:
            self._future.cancel()
        queue = Queue(self._engine, pieces, self._future)
        queue.begin()
        await self._future


class Queue:
    """Pieces that take each other's place."""

    def __init__(self, engine: Engine, pieces: Sequence["Piece"], future: "asyncio.Future[None]") -> None:
        self._engine = engine
        self._waiting = deque(pieces)
        self._under_way = 0
        self._taken = 0
        """How many the engine has had, answered ones included."""
        self._future = future

    @property
    def over(self) -> bool:
        return self._future.done()

    def begin(self) -> None:
        if not self._waiting:
            self._future.set_result(None)
        for _ in range(min(AT_ONCE, len(self._waiting))):
            self._next()

    def _next(self) -> None:
        if not self._waiting or self.over:
            return
        piece = self._waiting.popleft()
        piece.queue, piece.arrived = self, monotonic()  # what has waited here goes behind what others have queued meanwhile
        self._under_way += 1
        self._taken += 1
        try:
            self._engine.infer(piece)
        except WakefulError as error:
            if isinstance(error, Overloaded) and self._under_way > 1:  # its turn comes when another of this call is answered
                self._under_way -= 1
                self._taken -= 1
                self._waiting.appendleft(piece)
            else:
                self.refuse(piece, error)

    def done(self) -> None:
        self._under_way -= 1
        if self._waiting:
            self._next()
        elif not self._under_way and not self.over:
            self._future.set_result(None)

    def refuse(self, piece: "Piece", error: WakefulError) -> None:
        """The call is over. It has not started only if this piece has not, and there was no other."""
        if not self.over:
            self._future.set_exception(piece.blamed(error.of_begun() if self._taken > 1 else error))


class Piece(InferRequest, kw_only=True):
    """One request of a call."""

    take: Callable[[Sequence[Tensor]], None]
    """Is given the outputs, whose data are views that are valid only during the call."""
    field: str = ""
    """What of the caller's it is, as `input[3]`."""
    queue: Any = None

    @property  # type: ignore[misc]  # nobody sets it: whoever leaves, leaves the whole call
    def left(self) -> bool:
        return self.queue is not None and self.queue.over

    @left.setter
    def left(self, _: bool) -> None:
        """Set by the constructor only."""

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        try:
            self.take(outputs)
        except WakefulError as error:
            self.refuse(error)
        else:
            self.queue.done()

    def refuse(self, error: WakefulError) -> None:
        self.queue.refuse(self, error)

    def blamed(self, error: WakefulError) -> WakefulError:
        """The error, naming what of the caller's is wrong."""
        return InvalidInput(f"{self.field}: {error.message}") if self.field and isinstance(error, InvalidInput) else error
