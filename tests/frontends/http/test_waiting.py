"""Handlers that wait, in a task of their own."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from wakeful.errors import InvalidInput
from wakeful.frontends.http.admin import waiting


class Failed:
    """A connection that keeps what is answered."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def fail(self, error: Exception) -> None:
        self.errors.append(str(error))


class Body:
    """Something large."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is not freed at once stays."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_an_error_does_not_keep_the_body_in_memory() -> None:
    bodies: list[weakref.ref[Body]] = []

    async def handler(connection: Any, head: Any, body: Any) -> None:
        large, refused = Body(), asyncio.get_running_loop().create_future()
        bodies.append(weakref.ref(large))
        refused.set_exception(InvalidInput("so"))
        await refused

    async def request(connection: Any) -> None:
        tasks: list[asyncio.Task[None]] = []
        waiting(lambda work: tasks.append(asyncio.get_running_loop().create_task(work)), handler)(connection, None, b"")  # type: ignore[arg-type]  # not looked at
        await tasks[0]

    connection = Failed()
    asyncio.run(request(connection))
    assert connection.errors == ["so"]
    assert [body() for body in bodies] == [None]
