"""Who gets which frames, with lines that take what they are told to take."""

import asyncio
import json
from pathlib import Path
from typing import Any

from wakeful.clock import monotonic, wall
from wakeful.config.load import Options, load
from wakeful.engine import Engine
from wakeful.insight import state
from wakeful.insight.stream import MOST_EVENTS, Stream
from wakeful.insight.tracks import Track
from wakeful.insight.watch import MOST_GONE, About, Watch
from wakeful.memory.budget import Memory
from wakeful.memory.supervisor import Supervisor
from wakeful.models.pipelines.pipelines import Pipelines
from wakeful.models.registry import Registry
from wakeful.telemetry.events import Events
from wakeful.telemetry.metrics import Metrics, ModelStats


class Line:
    """Keeps what it is given while it is `open`."""

    def __init__(self) -> None:
        self.open = True
        self.ended = False
        self.offered = 0
        self._data = b""

    @property
    def takes(self) -> bool:
        return self.open

    def push(self, data: bytes) -> bool:
        self.offered += 1
        if self.open:
            self._data += data
        return self.open

    def end(self, data: bytes) -> None:
        self.push(data)
        self.ended = True

    def frames(self) -> list[tuple[str, Any]]:
        """Those that have come since the last look."""
        parts = [part.split("\n") for part in self._data.decode().split("\n\n") if part.startswith("event: ")]
        self._data = b""
        return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, _, data in parts]

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.frames()]


class Stage:
    """A daemon without models that goes from second to second when it is told to."""

    def __init__(self, directory: Path) -> None:
        async def nothing(*_: object) -> None:
            pass

        events = Events()
        memory = Memory(1 << 30, 1 << 29, "a machine")
        supervisor = Supervisor(1 << 29, None, lambda: memory, events)
        settings = load(Options(cache_dir=directory), {"HOME": str(directory)})
        self.engine = Engine(Registry(), Pipelines(nothing, events), supervisor, Metrics(), events, nothing, nothing)  # type: ignore[arg-type]  # no pipeline is made
        self.watch = Watch(self.engine, About(lambda: settings, 2, memory, None, dict, lambda _: "", monotonic()))
        self.stream = Stream(self.watch)

    async def tick(self) -> None:
        self.watch.second += 1
        await self.watch.tick()
        for tell in self.watch.on_tick:
            await tell()

    def emit(self) -> int:
        self.engine.events.emit("config", "", "something has changed")
        return self.engine.events.seq


def test_who_is_behind_is_told_so_and_gets_a_whole_picture(tmp_path: Path) -> None:
    async def run() -> None:
        stage, slow, fast = Stage(tmp_path), Line(), Line()
        for line in (slow, fast):
            stage.stream.follow(line)
        await stage.tick()
        assert slow.kinds() == fast.kinds() == ["snapshot", "tick"]
        slow.open = False
        first = stage.emit()
        await stage.tick()
        last = stage.emit()
        await stage.tick()
        assert fast.kinds() == ["event", "tick", "event", "tick"]
        assert slow.kinds() == []
        assert stage.watch.streams == (2, 4)
        slow.open = True
        await stage.tick()
        (kind, gap), (whole, _) = slow.frames()
        assert (kind, gap, whole) == ("gap", {"from": first - 1, "to": last}, "snapshot")
        assert fast.kinds() == ["tick"]
        await stage.tick()
        assert slow.kinds() == fast.kinds() == ["tick"]

    asyncio.run(run())


def test_no_picture_is_made_for_who_does_not_take_it(tmp_path: Path) -> None:
    async def run() -> None:
        stage, line = Stage(tmp_path), Line()
        stage.stream.follow(line)
        line.open = False
        await stage.tick()
        offered = line.offered
        await stage.tick()
        await stage.tick()
        assert line.offered == offered == 2  # a picture, and the tick that it did not take
        assert stage.watch.streams.frames_dropped == 3

    asyncio.run(run())


def test_of_many_events_in_a_second_the_rest_is_a_gap(tmp_path: Path) -> None:
    async def run() -> None:
        stage, line = Stage(tmp_path), Line()
        stage.stream.follow(line)
        for _ in range(MOST_EVENTS + 5):
            last = stage.emit()
        assert line.kinds() == ["snapshot"] + ["event"] * MOST_EVENTS
        await stage.tick()
        (kind, gap), (whole, _) = line.frames()
        assert (kind, gap, whole) == ("gap", {"from": last - 5, "to": last}, "snapshot")
        stage.emit()
        assert line.kinds() == ["event"]

    asyncio.run(run())


def test_the_past_of_models_that_are_gone_is_kept_for_a_few(tmp_path: Path) -> None:
    async def run() -> None:
        stage = Stage(tmp_path)
        for second in range(MOST_GONE + 5):
            track = stage.watch.tracks[f"m:{second}"] = Track(ModelStats("m"), second)
            track.changed(wall(), "ready")
        await stage.tick()
        assert list(stage.watch.tracks) == [f"m:{second}" for second in range(5, MOST_GONE + 5)]
        assert {track.changes[-1].state for track in stage.watch.tracks.values()} == {"asleep"}

    asyncio.run(run())


def test_memory_of_most_models_is_shown_as_one(tmp_path: Path) -> None:
    async def run() -> None:
        stage = Stage(tmp_path)
        for number in range(state.MOST_BANDS + 2):
            track = stage.watch.tracks[str(number)] = Track(ModelStats("m"), 8)
            track.history.record(9, (*[0] * 7, 0, 0, 1, 100 * (number + 1), 1), None)
        stage.watch.second = 10
        shown = state.history(stage.watch, None, "5m")
        assert shown["others"] == [0] * 298 + [302, 302]  # of the two that hold least
        assert "1" not in shown["memory"]
        assert len(shown["memory"]) == state.MOST_BANDS
        assert shown["memory"]["2"] == [None] * 297 + [0, 301, 301]

    asyncio.run(run())


def test_who_may_not_follow_any_more_is_told_so(tmp_path: Path) -> None:
    async def run() -> None:
        stage, brief, long = Stage(tmp_path), Line(), Line()
        stage.stream.follow(brief, until=wall() - 1)
        stage.stream.follow(long, until=wall() + 3600)
        await stage.tick()
        assert brief.frames()[-1] == ("bye", {"reason": "expired"})
        assert brief.ended
        assert not long.ended
        await stage.tick()
        assert stage.watch.streams.open == 1
        stage.stream.close("keys")
        assert long.frames()[-1] == ("bye", {"reason": "keys"})
        assert stage.watch.streams.open == 0

    asyncio.run(run())
