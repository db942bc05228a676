"""What a Server consists of is put into the API server, kept so, and not sent again for nothing."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.clock import Clock
from tests.cluster.waiting import until
from wakeful.cluster.controller import objects
from wakeful.cluster.controller.api import FORBIDDEN, SERVER, STATEFUL_SET, UNREACHED, Kind, Manifest, Refusal
from wakeful.cluster.controller.intake import Intake
from wakeful.cluster.controller.objects import Objects
from wakeful.cluster.controller.writer import Writer
from wakeful.cluster.dialects import DIALECTS
from wakeful.cluster.manifests import Install
from wakeful.cluster.planning.world import World

KINDS = {"Service", "ConfigMap", "StatefulSet", "PodDisruptionBudget"}


class Stage:
    """One Server, and the API server as far as it holds its objects."""

    def __init__(self) -> None:
        self.applied: list[Manifest] = []
        self.refusals: dict[str, Refusal] = {}
        """By kind."""
        self.leads = True
        self.said: list[str] = []
        self.world = World()
        writer = Writer(self, lambda key: None, lambda: True, self.said.append)
        self.intake = Intake(self.world, [DIALECTS["wakeful"]], writer, Clock())
        self.objects = Objects(self, self.world, self.intake, Install(namespace="models"), lambda: self.leads, self.said.append)
        self._numbers = itertools.count(1)

    async def apply(self, manifest: Manifest) -> Manifest:
        if (refusal := self.refusals.get(manifest["kind"])) is not None:
            raise refusal
        self.applied.append(manifest)
        return {**manifest, "metadata": {**manifest["metadata"], "generation": next(self._numbers)}}

    async def patch(self, kind: Kind, name: str, body: Manifest, *, status: bool = False) -> Manifest:
        raise AssertionError("no status is written here")

    def server(self, **spec: Any) -> None:
        number = next(self._numbers)
        meta = {"name": "triton", "uid": "u", "generation": number, "resourceVersion": str(number)}
        self.intake.seen(SERVER, {"metadata": meta, "spec": spec})
        self.ensure()

    def somebody_scales(self, stateful_set: Manifest) -> None:
        metadata = {**stateful_set["metadata"], "generation": next(self._numbers)}
        self.intake.seen(STATEFUL_SET, {**stateful_set, "metadata": metadata, "spec": {**stateful_set["spec"], "replicas": 9}})
        self.ensure()

    def ensure(self) -> None:
        self.intake.take()
        self.objects.ensure("triton")

    def kinds(self) -> list[str]:
        return [manifest["kind"] for manifest in self.applied]


def play(scene: Callable[[Stage], Awaitable[None]], again: float = 5.0, refresh: float = 600.0) -> None:
    async def main() -> None:
        stage = Stage()
        running = asyncio.create_task(stage.objects.run())
        await scene(stage)
        running.cancel()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(objects, "AGAIN", again)
        patched.setattr(objects, "REFRESH", refresh)
        asyncio.run(main())


async def made(stage: Stage) -> Manifest:
    """All objects are there. Returns the StatefulSet."""
    stage.server(replicas=2)
    await until(lambda: set(stage.kinds()) == KINDS)
    [stateful_set] = [one for one in stage.applied if one["kind"] == "StatefulSet"]
    stage.applied.clear()
    return stateful_set


async def passes(stage: Stage) -> None:
    """What was ensured before is done: a change that comes after it is."""
    stage.server(replicas=7)
    await until(lambda: any(one["kind"] == "StatefulSet" and one["spec"]["replicas"] == 7 for one in stage.applied))


def test_a_server_is_made_of_four_objects() -> None:
    async def scene(stage: Stage) -> None:
        stage.server(replicas=2)
        await until(lambda: len(stage.applied) == 4)
        assert set(stage.kinds()) == KINDS
        [stateful_set] = [one for one in stage.applied if one["kind"] == "StatefulSet"]
        assert stateful_set["spec"]["replicas"] == 2

    play(scene)


def test_what_is_there_is_not_sent_again() -> None:
    async def scene(stage: Stage) -> None:
        await made(stage)
        stage.ensure()
        await passes(stage)
        assert stage.kinds() == ["StatefulSet"]

    play(scene)


def test_what_somebody_else_made_of_the_stateful_set_is_put_right() -> None:
    async def scene(stage: Stage) -> None:
        stateful_set = await made(stage)
        stage.somebody_scales(stateful_set)
        await until(lambda: stage.kinds() == ["StatefulSet"])
        assert stage.applied[0]["spec"]["replicas"] == 2

    play(scene)


def test_a_refused_object_is_told_in_the_status_and_tried_again_without_the_others() -> None:
    async def scene(stage: Stage) -> None:
        stage.refusals["PodDisruptionBudget"] = Refusal(FORBIDDEN, "not allowed")
        stage.server(replicas=2)
        await until(lambda: "triton" in stage.objects.refused)
        assert stage.objects.observed("triton").refused == "PodDisruptionBudget triton: not allowed"
        assert stage.said == ["Server triton: PodDisruptionBudget triton: not allowed; trying again"]
        assert stage.intake.take().servers == {"triton"}, "its status is another"
        stage.refusals.clear()
        await until(lambda: stage.objects.refused == {})
        assert sorted(stage.kinds()) == sorted(KINDS)

    play(scene, again=0.01)


def test_nothing_is_applied_by_who_does_not_lead() -> None:
    async def scene(stage: Stage) -> None:
        stage.leads = False
        stage.server(replicas=2)
        await asyncio.sleep(0)
        stage.leads = True
        await passes(stage)
        assert all(one["spec"]["replicas"] == 7 for one in stage.applied if one["kind"] == "StatefulSet")

    play(scene)


def test_now_and_then_all_is_sent_again() -> None:
    async def scene(stage: Stage) -> None:
        await made(stage)
        await until(lambda: set(stage.kinds()) == KINDS)

    play(scene, again=0.01, refresh=0.0)


def test_a_server_that_was_deleted_meanwhile_needs_nothing() -> None:
    async def scene(stage: Stage) -> None:
        stage.refusals = dict.fromkeys(KINDS, Refusal(UNREACHED, "no answer"))
        stage.server()
        await until(lambda: "triton" in stage.objects.refused)
        stage.intake.vanished(SERVER, "triton")
        stage.ensure()
        await until(lambda: stage.objects.refused == {})
        assert stage.applied == []

    play(scene)


def test_pods_of_a_server_that_says_something_wrong_stay_as_they_are() -> None:
    async def scene(stage: Stage) -> None:
        await made(stage)
        stage.server(replicas=3, config={"defaults": {"memory_limit": "much"}})
        await passes(stage)
        assert [one["spec"]["replicas"] for one in stage.applied] == [7]

    play(scene)
