"""Kubernetes Events: told once, then counted, and never more than the API server and people can bear."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.clock import Clock
from tests.cluster.waiting import until
from wakeful.cluster.controller import events
from wakeful.cluster.controller.api import EVENT, UNREACHED, Kind, Manifest, Refusal
from wakeful.cluster.controller.events import Events, Subject
from wakeful.cluster.planning.effects import Note

MOVED = Note("Model", "m", "Normal", "Moved", "from triton-0 to triton-1")


class Store:
    def __init__(self) -> None:
        self.events: dict[str, Manifest] = {}
        self.calls = 0
        self.away = False

    async def create(self, kind: Kind, body: Manifest) -> Manifest:
        self._call(kind)
        return self.events.setdefault(body["metadata"]["name"], body)

    async def patch(self, kind: Kind, name: str, body: Manifest) -> Manifest:
        self._call(kind)
        self.events[name].update(body)
        return self.events[name]

    def _call(self, kind: Kind) -> None:
        assert kind == EVENT
        self.calls += 1
        if self.away:
            raise Refusal(UNREACHED, "no answer")

    @property
    def told(self) -> list[tuple[str, int]]:
        return [(event["message"], event["count"]) for event in self.events.values()]


class Stage:
    def __init__(self) -> None:
        self.store, self.clock = Store(), Clock(1_796_000_000.0)
        self.events = Events(self.store, "models", self._find, now=self.clock)

    def _find(self, note: Note) -> Subject | None:
        return None if note.name == "stranger" else Subject("wakeful.dev/v1alpha1", note.kind, note.name, f"uid-{note.name}")


def play(scene: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        stage = Stage()
        running = asyncio.create_task(stage.events.run())
        await scene(stage)
        running.cancel()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(events, "PAUSE", 0.005)
        asyncio.run(main())


def test_an_event_is_of_its_object_and_says_when_and_why() -> None:
    async def scene(stage: Stage) -> None:
        stage.events.note(MOVED)
        await until(lambda: bool(stage.store.events))
        [event] = stage.store.events.values()
        assert event["involvedObject"] == {"apiVersion": "wakeful.dev/v1alpha1", "kind": "Model", "name": "m", "namespace": "models", "uid": "uid-m"}
        assert (event["type"], event["reason"], event["message"], event["count"]) == ("Normal", "Moved", MOVED.message, 1)
        assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-11-30T00:53:20Z"
        assert event["metadata"]["name"].startswith("m.")
        assert event["metadata"]["namespace"] == "models"

    play(scene)


def test_the_same_again_is_counted_and_after_ten_minutes_told_anew() -> None:
    async def scene(stage: Stage) -> None:
        stage.events.note(MOVED)
        await until(lambda: stage.store.told == [(MOVED.message, 1)])
        stage.clock.time += 60
        stage.events.note(MOVED)
        stage.events.note(MOVED)
        await until(lambda: stage.store.told == [(MOVED.message, 3)])
        [event] = stage.store.events.values()
        assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2026-11-30T00:53:20Z", "2026-11-30T00:54:20Z")
        stage.clock.time += events.SAME
        stage.events.note(MOVED)
        await until(lambda: stage.store.told == [(MOVED.message, 3), (MOVED.message, 1)])

    play(scene)


def test_of_an_object_that_is_gone_nothing_is_told() -> None:
    async def scene(stage: Stage) -> None:
        stage.events.note(Note("Model", "stranger", "Normal", "Moved", "away"))
        stage.events.note(MOVED)
        await until(lambda: bool(stage.store.events))
        assert stage.store.told == [(MOVED.message, 1)]

    play(scene)


def test_what_the_api_server_does_not_take_holds_nobody_up() -> None:
    async def scene(stage: Stage) -> None:
        stage.store.away = True
        stage.events.note(MOVED)
        await until(lambda: stage.store.calls == 1)
        stage.store.away = False
        stage.events.note(other := Note("Model", "n", "Warning", "LoadFailed", "no file"))
        await until(lambda: stage.store.told == [(other.message, 1)])
        stage.events.note(MOVED)
        await until(lambda: (MOVED.message, 2) in stage.store.told)

    play(scene)


def test_a_long_message_is_cut_to_what_an_event_may_say() -> None:
    async def scene(stage: Stage) -> None:
        stage.events.note(Note("Model", "m", "Warning", "LoadFailed", "x" * 5000))
        await until(lambda: bool(stage.store.events))
        [(message, _)] = stage.store.told
        assert len(message) == 1024

    play(scene)


def test_more_than_can_be_told_is_dropped_and_counted() -> None:
    stage = Stage()
    for number in range(events.REMEMBERED + 5):
        stage.events.note(Note("Model", f"m{number}", "Normal", "Moved", "away"))
    assert stage.events.dropped == 5


def test_a_count_that_grows_and_grows_is_written_now_and_then() -> None:
    async def scene(stage: Stage) -> None:
        stage.events.note(MOVED)
        await until(lambda: stage.store.told == [(MOVED.message, 1)])
        for _ in range(99):
            stage.events.note(MOVED)
            await asyncio.sleep(0.001)
        assert stage.store.calls == 1
        stage.clock.time += events.RECOUNT
        await until(lambda: stage.store.told == [(MOVED.message, 100)])
        assert stage.store.calls == 2

    play(scene)


def test_warnings_are_told_first() -> None:
    async def scene(stage: Stage) -> None:
        stage.events.note(MOVED)
        stage.events.note(failed := Note("Model", "n", "Warning", "LoadFailed", "no file"))
        await until(lambda: len(stage.store.told) == 2)
        assert [message for message, _ in stage.store.told] == [failed.message, MOVED.message]

    play(scene)
