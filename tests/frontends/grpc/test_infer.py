"""Inference, from a call's message to its answer, with models that give back what they get."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from tests.frontends.grpc.heard import Heard
from tests.frontends.http.memory import TURNS, EchoEngine
from wakeful.config.settings import AuthSettings
from wakeful.frontends.access import Access
from wakeful.frontends.grpc import oip, snooze
from wakeful.frontends.grpc.errors import Code
from wakeful.frontends.grpc.infer import DECODED_HERE, InferHandlers
from wakeful.frontends.grpc.server import GrpcServer

Write = Callable[[int, str, int], bytes]
"""A message of so many elements, to this model, in a shape of so many."""


def of_oip(size: int, model: str, shape: int) -> bytes:
    request = oip.Request(model_name=model, raw_input_contents=[bytes(4 * size)])
    request.inputs.add(name="x", datatype="FP32", shape=[shape])
    encoded: bytes = request.SerializeToString()
    return encoded


def of_snooze(size: int, model: str, shape: int) -> bytes:
    request = snooze.Request(model_id=model)
    request.inputs.add(name="x", data_type=snooze.FP32, shape=[shape], raw_data=bytes(4 * size))
    encoded: bytes = request.SerializeToString()
    return encoded


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is not freed at once stays."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(("dialect", "write"), [("oip", of_oip), ("snooze", of_snooze)])
@pytest.mark.parametrize("size", [4, DECODED_HERE // 4], ids=["decoded in the loop", "decoded in a thread"])
@pytest.mark.parametrize(("model", "extra", "leaves", "end"), [
    ("fp32", 0, False, Code.OK), ("nobody", 0, False, Code.NOT_FOUND), ("fp32", 1, False, Code.INVALID_ARGUMENT), ("fp32", 0, True, None),
], ids=["answered", "refused at the door", "no request", "its caller leaves"])
def test_nothing_of_a_call_stays_in_memory(
    dialect: str, write: Write, size: int, model: str, extra: int, leaves: bool, end: Code | None
) -> None:
    async def call() -> "weakref.ref[Heard]":
        loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()
        handlers = InferHandlers(EchoEngine(), lambda work: tasks.append(loop.create_task(work)))
        made = Heard(getattr(handlers, dialect))
        server = GrpcServer([], Access(AuthSettings()), lambda _: None, 2 * DECODED_HERE, 60, None, strangers=False)
        server.take(made, write(size, model, size + extra))
        if leaves:
            made.leave()
        for task in tasks:
            await task
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if end is not None:
            assert (made.ended[0] if made.ended else Code.OK, len(made.answers)) == (end, end == Code.OK)
        return weakref.ref(made)

    assert asyncio.run(call())() is None
