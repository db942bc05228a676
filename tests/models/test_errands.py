"""Which wish for a prepared copy is next."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wakeful.models import errands
from wakeful.models.errands import SMALLEST, Errands


class Memory:
    """A supervisor's figures."""

    budget = 100
    resident = 90


def model(path: Path, name: str, estimate: int) -> Any:
    file = path / name
    file.write_bytes(bytes(SMALLEST))
    return SimpleNamespace(id=name, device="cpu", settings=SimpleNamespace(path=file), file=SimpleNamespace(identity=name, estimate=lambda: estimate))


def test_a_model_that_there_is_no_room_for_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errands, "ROOM_SECONDS", 0.0)
    large, small = model(tmp_path, "large", 50), model(tmp_path, "small", 5)
    memory, done = Memory(), []

    async def play() -> None:
        both = asyncio.Event()
        queue: Any = Errands(None, memory, object(), None, 1)  # type: ignore[arg-type]  # nothing else is asked

        async def prepared(model: Any) -> None:
            done.append(model.id)
            memory.resident = 40
            if len(done) == 2:
                both.set()

        async def nothing(_: Any) -> None: ...

        queue._prepare, queue._measure_threads = prepared, nothing
        queue.wish_prepared(large)
        queue.wish_prepared(small)
        queue.wish_prepared(small)
        task = asyncio.create_task(queue.run())
        await both.wait()
        task.cancel()

    asyncio.run(asyncio.wait_for(play(), 30))
    assert done == ["small", "large"]
