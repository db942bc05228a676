"""A batcher on a real event loop whose clock jumps instead of waiting, with replicas that run when the test says so."""

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from wakeful.batching.batcher import Batcher
from wakeful.batching.lane import Lane
from wakeful.config.settings import BatchingSettings
from wakeful.errors import WakefulError
from wakeful.inference import FOREVER, InferRequest
from wakeful.replicas.routing import Router
from wakeful.runtime.arena import Slot, aligned
from wakeful.runtime.messages import Done, Failed, Placement
from wakeful.telemetry.metrics import ModelStats
from wakeful.tensors import Tensor, encode_strings


class _Selector(selectors.SelectSelector):
    """Where another would wait, time jumps."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "the test waits for what can never come"
            self.loop.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when there is nothing else to do."""

    def __init__(self) -> None:
        self.now = 1000.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


class Asked(InferRequest):
    """A caller's request that remembers what it was told."""

    told: list[list[Tensor] | WakefulError] = []  # noqa: RUF012 - a Struct makes each its own

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        self.told.append([tensor._replace(data=bytes(tensor.data)) for tensor in outputs])

    def refuse(self, error: WakefulError) -> None:
        self.told.append(error)

    @property
    def outputs_told(self) -> list[Tensor]:
        (answer,) = self.told
        assert isinstance(answer, list), answer
        return answer

    @property
    def values(self) -> list[float]:
        """The elements of the only output, FP32."""
        (tensor,) = self.outputs_told
        assert tensor.shape[0] == self.rows
        values: list[float] = np.frombuffer(tensor.data, "<f4").tolist()
        return values

    @property
    def error(self) -> WakefulError:
        (answer,) = self.told
        assert isinstance(answer, WakefulError), answer
        return answer


Compute = Callable[[list[Tensor]], list[Tensor]]


def echo(inputs: list[Tensor]) -> list[Tensor]:
    return inputs


def as_it_is(request: InferRequest) -> None:
    """Validation that changes nothing."""


class Order(NamedTuple):
    run: int
    slot: int
    end: int
    inputs: tuple[Placement, ...]


class Double:
    """A replica at the border of its process. What it is given lies in real slots; a run ends when the test says so."""

    def __init__(self, batcher: Batcher, compute: Compute = echo) -> None:
        self.slots = [Slot.create(), Slot.create()]
        self.given: deque[Order] = deque()
        self.shapes: list[tuple[int, ...]] = []
        """Of the first input of all runs so far."""
        self.compute = compute
        self._batcher = batcher
        self.lane: Lane

    @property
    def runs(self) -> list[int]:
        """Rows of all runs so far."""
        return [shape[0] for shape in self.shapes]

    def run(self, run: int, slot: int, end: int, inputs: tuple[Placement, ...]) -> None:
        assert slot not in [order.slot for order in self.given], "a slot that is in use was written"
        self.given.append(Order(run, slot, end, inputs))
        self._begin()
        self.shapes.append(inputs[0].shape)

    def finish(self, seconds: float = 0.001) -> None:
        """End the oldest run well."""
        order = self.given.popleft()
        view = self.slots[order.slot].reach(order.end)
        outputs = self.compute([Tensor(p.name, p.datatype, p.shape, bytes(view[p.offset : p.offset + p.nbytes])) for p in order.inputs])
        placements, at = [], order.end
        for name, datatype, shape, data in outputs:
            at = aligned(at)
            self.slots[order.slot].reach(at + len(data))[at : at + len(data)] = data
            placements.append(Placement(name, datatype, shape, at, len(data)))
            at += len(data)
        self._begin()
        self._batcher.done(self.lane, Done(order.run, seconds, tuple(placements)))

    def fail(self, kind: str = "execution_failed", reason: str = "no") -> None:
        """End the oldest run badly."""
        order = self.given.popleft()
        self._begin()
        self._batcher.failed(self.lane, Failed(order.run, kind, reason))

    def _begin(self) -> None:
        """A replica runs one at a time, the oldest first."""
        if self.given:
            self.slots[self.given[0].slot].mark(self.given[0].run)

    def die(self, *, out_of_memory: bool = False) -> None:
        self.given.clear()
        self._batcher.lost(self.lane, "the model's process was ended by SIGKILL", out_of_memory=out_of_memory)


class Stage:
    """One model's batcher and what surrounds it."""

    def __init__(self, loop: VirtualLoop, settings: BatchingSettings, routing: str) -> None:
        self.loop = loop
        self.stats = ModelStats("m")
        self.idle: list[Lane] = []
        self.stuck: list[Lane] = []
        self.broken: list[Lane] = []
        self.culprits: list[InferRequest] = []
        self.memory_asked = 0
        self.asked: list[Asked] = []
        self.doubles: list[Double] = []
        self.batcher = Batcher(settings, Router(routing, seed=1).choose, self.stats, self)

    # The batcher's owner.

    def lane_idle(self, lane: Lane) -> None:
        self.idle.append(lane)

    def memory_wanted(self) -> None:
        self.memory_asked += 1

    def rows_limited(self, rows: int) -> None:
        self.batcher.limits.max_rows = min(self.batcher.limits.max_rows, rows)

    def lane_stuck(self, lane: Lane, seconds: float) -> None:
        self.stuck.append(lane)

    def lane_broken(self, lane: Lane) -> None:
        self.broken.append(lane)

    def culprit_found(self, request: InferRequest, reason: str, *, crashed: bool) -> None:
        self.culprits.append(request)

    # What a test does.

    def replica(self, compute: Compute = echo) -> Double:
        double = Double(self.batcher, compute)
        double.lane = self.batcher.open(double)
        self.doubles.append(double)
        return double

    def ask(self, *rows: float, group: str | None = "g", width: int = 1, **more: Any) -> Asked:
        """Submit a request of these rows, FP32 [rows, width], each row filled with its number."""
        data = np.repeat(np.array(rows, "<f4"), width).tobytes()
        return self.ask_tensors(Tensor("x", "FP32", (len(rows), width), data), group=group, **more)

    def ask_texts(self, *rows: str, **more: Any) -> Asked:
        return self.ask_tensors(Tensor("x", "BYTES", (len(rows),), encode_strings([row.encode() for row in rows])), group="texts", **more)

    def ask_tensors(
        self, *tensors: Tensor, group: Hashable = "g", seconds: float | None = None, kind: type[Asked] = Asked, **more: Any
    ) -> Asked:
        """`seconds`: until the deadline."""
        more.setdefault("arrived", self.loop.now)
        deadline = FOREVER if seconds is None else self.loop.now + seconds
        request = kind("m", tensors, deadline=deadline, protocol="test", rows=tensors[0].shape[0], group=group, **more)
        self.asked.append(request)
        self.batcher.submit(request)
        return request

    async def turn(self) -> None:
        """Let everything happen that can happen now."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def wait(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)
        await self.turn()

    async def serve(self) -> None:
        """End all runs well, and those that follow from them."""
        await self.turn()
        while any(double.given for double in self.doubles):
            for double in self.doubles:
                if double.given:
                    double.finish()
                    await self.turn()

    def check(self) -> None:
        """Every caller was told once, everything was counted once, and nothing is left anywhere."""
        for request in self.asked:
            assert len(request.told) == (0 if request.left else 1), request.told
        assert sum(self.stats.requests.values()) == len(self.asked)
        batcher = self.batcher
        assert (batcher.waiting, batcher.active, batcher.busy) == (0, 0, False)
        assert batcher.room.rows == sum(lane.queue.rows for lane in batcher.lanes) == 0
        assert not batcher._closing
        for lane in batcher.lanes:
            assert sorted(lane.free) == [0, 1]


Test = Callable[[Stage], Coroutine[Any, Any, None]]


def staged(
    policy: Any = "timer", max_rows: int = 4, max_delay: float = 60.0, routing: str = "least-queue", **more: Any
) -> Callable[[Test], Callable[[], None]]:
    """Run a test on a stage. Afterwards nothing may be left over."""

    def decorate(test: Test) -> Callable[[], None]:
        def run() -> None:
            loop = VirtualLoop()

            async def play() -> None:
                stage = Stage(loop, BatchingSettings(policy=policy, max_rows=max_rows, max_delay=max_delay, **more), routing)
                await test(stage)
                stage.check()

            with pytest.MonkeyPatch.context() as patch:
                for module in ("batcher", "settling"):
                    patch.setattr(f"wakeful.batching.{module}.monotonic", loop.time)
                try:
                    loop.run_until_complete(play())
                finally:
                    loop.close()

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate
