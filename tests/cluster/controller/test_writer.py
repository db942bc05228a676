"""Statuses: which is written when (pure), what of them, and what becomes of a refused one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.cluster.waiting import until
from wakeful.cluster.controller.api import MODEL, UNREACHED, Kind, Manifest, Refusal
from wakeful.cluster.controller.writer import Key, Queue, Writer, difference

A, B = Key(MODEL, "a"), Key(MODEL, "b")


def test_one_object_is_written_once_a_second() -> None:
    queue = Queue()
    queue.add(A)
    queue.add(A)
    assert queue.take(10.0) == A
    assert queue.take(10.0) is None
    queue.add(A)
    assert queue.take(10.5) == pytest.approx(0.5)
    assert queue.take(11.0) == A


def test_all_objects_together_are_written_no_faster_than_the_rate() -> None:
    queue = Queue(rate=50.0)
    keys = [Key(MODEL, f"m{number}") for number in range(100)]
    for key in keys:
        queue.add(key)
    now, taken = 0.0, []
    while (step := queue.take(now)) is not None:
        if isinstance(step, Key):
            taken.append((step, now))
        else:
            now += step
    assert [key for key, _ in taken] == keys
    assert taken[-1][1] == pytest.approx(99 / 50)


def test_what_is_written_past_the_queue_counts() -> None:
    queue = Queue(rate=50.0)
    queue.add(A)
    queue.add(B)
    queue.charge(A, 10.0)
    assert queue.take(10.0) == pytest.approx(0.02)
    assert queue.take(10.02) == B
    assert queue.take(11.0) == A


def test_who_is_taken_and_has_nothing_to_be_written_holds_nobody_up() -> None:
    queue = Queue(rate=50.0)
    queue.add(A)
    queue.add(B)
    assert queue.take(0.0) == A
    queue.give_back(A)
    assert queue.take(0.0) == B


def test_who_may_not_be_written_yet_holds_nobody_up() -> None:
    queue = Queue(rate=1e9)
    queue.add(A)
    assert queue.take(0.0) == A
    queue.add(A)
    queue.add(B)
    assert queue.take(0.1) == B
    assert queue.take(0.2) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("stored", "wanted", "patch"),
    [
        ({"state": "A"}, {"state": "A"}, {}),
        ({"state": "A", "server": "x"}, {"state": "B"}, {"state": "B", "server": None}),
        ({"placements": [1, 2]}, {"placements": [2]}, {"placements": [2]}),
        ({"scaling": {"target": 1, "lastStep": "x"}}, {"scaling": {"target": 2}}, {"scaling": {"target": 2, "lastStep": None}}),
        ({}, {"scaling": {"target": 2}}, {"scaling": {"target": 2}}),
    ],
)
def test_only_what_differs_is_written(stored: dict[str, Any], wanted: dict[str, Any], patch: dict[str, Any]) -> None:
    assert difference(stored, wanted) == patch


class Store:
    def __init__(self) -> None:
        self.bodies: list[Manifest] = []
        self.refusals: list[Refusal] = []
        self.version = 100

    async def patch(self, kind: Kind, name: str, body: Manifest, *, status: bool = False) -> Manifest:
        if self.refusals:
            raise self.refusals.pop(0)
        self.bodies.append({"name": name, **body["status"]})
        self.version += 1
        return {"metadata": {"resourceVersion": str(self.version)}}


class Stage:
    """A writer, and what the statuses of objects should be."""

    def __init__(self, *, may_write: bool = True) -> None:
        self.store, self.said = Store(), list[str]()
        self.wanted: dict[Key, dict[str, Any]] = {}
        self.writer = Writer(self.store, self.wanted.get, lambda: may_write, self.said.append, Queue(spacing=0.01))

    def want(self, key: Key, status: dict[str, Any]) -> None:
        self.wanted[key] = status
        self.writer.touch(key)


def write(test: Callable[[Stage], Awaitable[None]], *, may_write: bool = True) -> None:
    async def main() -> None:
        stage = Stage(may_write=may_write)
        running = asyncio.create_task(stage.writer.run())
        await test(stage)
        running.cancel()

    asyncio.run(main())


def test_the_newest_status_is_written_and_the_same_is_not() -> None:
    async def test(stage: Stage) -> None:
        stage.writer.observed(A, "7", {"state": "Progressing"})
        stage.want(A, {"state": "Progressing"})
        stage.want(A, {"state": "Degraded"})
        stage.want(A, {"state": "Available"})
        await until(lambda: stage.writer.written == 1)
        assert stage.store.bodies == [{"name": "a", "state": "Available"}]
        assert stage.writer.latest(A) == {"state": "Available"}
        stage.writer.touch(A)
        await until(lambda: stage.writer.waiting == 0)
        assert stage.writer.written == 1

    write(test)


def test_what_somebody_else_writes_is_written_again_and_our_own_echo_is_not() -> None:
    async def test(stage: Stage) -> None:
        stage.want(A, {"state": "Available"})
        await until(lambda: stage.writer.written == 1)
        stage.writer.observed(A, "101", {"state": "Available"})
        assert stage.writer.waiting == 0
        stage.writer.observed(A, "150", {"state": "Hacked", "more": 1})
        stage.store.version = 150
        await until(lambda: stage.writer.written == 2)
        assert stage.store.bodies[-1] == {"name": "a", "state": "Available", "more": None}

    write(test)


def test_a_target_is_written_ahead_and_if_that_fails_it_is_told() -> None:
    async def test(stage: Stage) -> None:
        assert await stage.writer.write_ahead(A, {"scaling": {"target": 2}})
        stage.store.refusals.append(Refusal(UNREACHED, "no answer"))
        assert not await stage.writer.write_ahead(A, {"scaling": {"target": 3}})
        assert stage.writer.latest(A) == {"scaling": {"target": 2}}
        assert stage.said == ["Model a: its target could not be written, and is not followed: no answer"]
        assert stage.store.bodies == [{"name": "a", "scaling": {"target": 2}}]

    write(test)


def test_a_status_that_did_not_arrive_is_tried_again_and_one_that_is_wrong_is_told() -> None:
    async def test(stage: Stage) -> None:
        stage.store.refusals += [Refusal(UNREACHED, "no answer"), Refusal(422, "state: unsupported value")]
        stage.want(A, {"state": "Available"})
        await until(lambda: bool(stage.said), 10)
        assert stage.said == ["the status of Model a is refused: state: unsupported value"]
        assert stage.writer.waiting == 0

    write(test)


def test_of_an_object_that_is_gone_nothing_is_written() -> None:
    async def test(stage: Stage) -> None:
        stage.writer.touch(A)
        stage.want(B, {"state": "Available"})
        stage.writer.forget(B)
        await until(lambda: stage.writer.waiting == 0)
        assert stage.store.bodies == []

    write(test)


def test_who_does_not_lead_any_more_writes_nothing() -> None:
    async def test(stage: Stage) -> None:
        stage.want(A, {"state": "Available"})
        await until(lambda: stage.writer.waiting == 0)
        assert stage.store.bodies == []
        assert not await stage.writer.write_ahead(A, {"scaling": {"target": 2}})

    write(test, may_write=False)
