"""What a reflector makes of what an API server may do. A real one is in the scenarios; this one does what it is told."""

import asyncio
from collections.abc import AsyncIterator, Callable

from tests.cluster.waiting import until
from wakeful.cluster.controller.api import GONE, MODEL, UNREACHED, Kind, Listed, Manifest, Refusal
from wakeful.cluster.controller.reflector import Reflector


def model(name: str, version: int) -> Manifest:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class Server:
    """`script`: what each watch does, one after another: changes, then an error, an end, or silence."""

    def __init__(self, *script: list[tuple[str, Manifest] | Refusal | None]) -> None:
        self.objects: list[Manifest] = []
        self.version = 1
        self.watched_from: list[str] = []
        self.refuse_lists = 0
        self._script = iter(script)

    async def list(self, kind: Kind, label: str | None = None) -> Listed:
        if self.refuse_lists:
            self.refuse_lists -= 1
            raise Refusal(UNREACHED, "refused")
        return Listed(list(self.objects), str(self.version))

    async def watch(self, kind: Kind, version: str, label: str | None = None) -> AsyncIterator[tuple[str, Manifest]]:
        self.watched_from.append(version)
        for step in next(self._script, [None]):
            if step is None:
                await asyncio.Event().wait()
            elif isinstance(step, Refusal):
                raise step
            else:
                yield step


class Sink:
    def __init__(self) -> None:
        self.now: dict[str, str] = {}
        self.told: list[str] = []

    def seen(self, kind: Kind, manifest: Manifest) -> None:
        self.now[manifest["metadata"]["name"]] = manifest["metadata"]["resourceVersion"]
        self.told.append(f"{manifest['metadata']['name']}@{manifest['metadata']['resourceVersion']}")

    def vanished(self, kind: Kind, name: str) -> None:
        del self.now[name]
        self.told.append(f"-{name}")


def reflect(server: Server, goal: Callable[[Sink, Reflector], bool], *, silence: float = 40.0) -> tuple[Sink, list[str]]:
    async def main() -> tuple[Sink, list[str]]:
        sink, said = Sink(), list[str]()
        reflector = Reflector(server, MODEL, sink, complain=said.append, silence=silence)
        task = asyncio.create_task(reflector.run())
        await until(lambda: goal(sink, reflector))
        task.cancel()
        return sink, said

    return asyncio.run(main())


def test_a_list_and_its_changes() -> None:
    server = Server([("ADDED", model("b", 5)), ("MODIFIED", model("a", 6)), ("DELETED", model("b", 7)), None])
    server.objects = [model("a", 1)]
    sink, _ = reflect(server, lambda sink, _: "-b" in sink.told)
    assert sink.told == ["a@1", "b@5", "a@6", "-b"]


def test_a_broken_watch_goes_on_from_its_last_version() -> None:
    server = Server([("ADDED", model("a", 5)), Refusal(UNREACHED, "reset")], [Refusal(UNREACHED, "refused")], [("MODIFIED", model("a", 6)), None])
    _, said = reflect(server, lambda sink, _: sink.now == {"a": "6"})
    assert server.watched_from == ["1", "5", "5"]
    assert said == ["models.wakeful.dev: reset; trying again"]


def test_silence_is_a_dead_connection() -> None:
    server = Server([("ADDED", model("a", 5)), None], [("ADDED", model("b", 6)), None])
    reflect(server, lambda sink, _: "b" in sink.now, silence=0.05)
    assert server.watched_from[:2] == ["1", "5"]


def test_a_version_too_old_is_listed_anew_and_what_vanished_meanwhile_is_told() -> None:
    server = Server([("ADDED", model("b", 5)), Refusal(GONE, "too old")], [None])
    server.objects = [model("a", 1)]
    sink, said = reflect(server, lambda _, reflector: reflector.relists == 2)
    assert sink.told == ["a@1", "b@5", "-b"]
    assert said == []


def test_a_refused_list_is_tried_again() -> None:
    server = Server([None])
    server.objects = [model("a", 1)]
    server.refuse_lists = 2
    _, said = reflect(server, lambda sink, _: "a" in sink.now)
    assert said == ["models.wakeful.dev: refused; trying again"]
