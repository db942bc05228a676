"""Manifests and agents' messages in the planner's words."""

from typing import Any

import pytest
from msgspec import structs

from wakeful.cluster.controller import observing
from wakeful.cluster.planning.world import Held, ModelEntry, ModelSpec, Placement, State, Use, World
from wakeful.cluster.wire import PROTOCOL, HeldNow, Hello, Report, UseNow


def pod(*, ready: bool = True, containers: bool = True, deleted: str | None = None, grace: int = 120, phase: str = "Running") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}, {"type": "ContainersReady", "status": str(containers)}]
    meta: dict[str, Any] = {"name": "triton-2", "uid": "u2", "labels": {"wakeful.dev/server": "triton"}}
    if deleted:
        meta |= {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace}
    return {"metadata": meta, "spec": {}, "status": {"phase": phase, "podIP": "10.0.0.2", "conditions": conditions}}


def test_a_pod_is_a_replica_until_it_has_ended() -> None:
    replica = observing.replica(pod())
    assert replica is not None
    assert (replica.uid, replica.pod, replica.server, replica.ordinal, replica.ip, replica.ready) == ("u2", "triton-2", "triton", 2, "10.0.0.2", True)
    assert not replica.lost
    assert replica.leaving_by is None
    assert observing.replica(pod(phase="Failed")) is None
    assert observing.replica({"metadata": {"name": "other", "uid": "x"}}) is None


@pytest.mark.parametrize(("grace", "margin"), [(120, 10), (20, 5), (0, 0)])
def test_a_deleted_pod_has_until_shortly_before_it_is_killed(grace: int, margin: float) -> None:
    replica = observing.replica(pod(deleted="2026-11-30T12:00:00Z", grace=grace))
    assert replica is not None
    assert replica.leaving_by == 1796040000.0 - margin


def test_a_pod_that_is_not_ready_although_its_containers_are_has_lost_its_node() -> None:
    lost, failing = observing.replica(pod(ready=False)), observing.replica(pod(ready=False, containers=False))
    assert lost is not None
    assert failing is not None
    assert lost.lost
    assert not failing.lost


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ({"kind": "Server", "name": "triton", "apiVersion": "wakeful.dev/v1alpha1"}, ("Server", "triton")),
        ({"kind": "Model", "name": "cat", "apiVersion": "wakeful.dev/v1beta1"}, ("Model", "cat")),
        ({"kind": "Server", "name": "triton", "apiVersion": "mlops.seldon.io/v1alpha1"}, None),
        ({"kind": "StatefulSet", "name": "triton", "apiVersion": "apps/v1"}, None),
    ],
)
def test_whose_count_an_autoscaler_decides(target: dict[str, str], found: tuple[str, str] | None) -> None:
    assert observing.autoscaled({"spec": {"scaleTargetRef": target}}, frozenset({"wakeful.dev"})) == found


def hello(**held: HeldNow) -> Hello:
    use = {"cat": UseNow(5, 4)}
    return Hello(PROTOCOL, "triton-2", "u2", "triton", 8080, 9000, ["onnx"], 1 << 30, "1", held=held, use=use, limits={"inactive": 60.0})


def test_a_report_changes_what_it_names() -> None:
    agent = observing.agent(hello(cat=HeldNow("ready", "r1"), dog=HeldNow("ready", "r1")), 1.0)
    assert agent.limits == {"inactive": 60.0}
    report = Report({"cat": HeldNow("ready", "r1"), "cow": HeldNow("loading", "r1")}, ["dog", "unheard"], {"cat": UseNow(9, 9)}, 5)
    assert observing.take(agent, report, 2.0) == {"dog", "cow"}
    assert agent.held == {"cat": Held("ready", "r1"), "cow": Held("loading", "r1")}
    assert agent.use == {"cat": Use(9, 9)}
    assert (agent.capacity, agent.heard) == (5, 2.0)


def test_to_fall_asleep_and_to_wake_are_news_for_people_alone() -> None:
    agent = observing.agent(hello(cat=HeldNow("ready", "r1"), dog=HeldNow("ready", "r1", asleep=True), cow=HeldNow("loading", "r1")), 1.0)
    report = Report({
        "cat": HeldNow("ready", "r1", asleep=True), "dog": HeldNow("ready", "r1"), "cow": HeldNow("ready", "r1", asleep=True),
        "new": HeldNow("ready", "r1", asleep=True),
    })
    assert observing.turned(agent, report) == {"cat": True, "dog": False}
    assert observing.take(agent, report, 2.0) == {"cow", "new"}
    assert agent.held["cat"].asleep
    assert observing.turned(agent, report) == {}


def test_what_a_replica_serves_without_a_placement_is_taken_over() -> None:
    replica = observing.replica(pod())
    assert replica is not None
    replica.agent = observing.agent(
        hello(known=HeldNow("ready", "r1"), cat=HeldNow("ready", "r1"), deleted=HeldNow("ready", "r1"), coming=HeldNow("loading", "r1")), 1.0
    )
    world = World(replicas={"u2": replica}, models={name: ModelEntry(ModelSpec(name, "file:///x", "r2")) for name in ("known", "cat", "coming")})
    kept = world.models["known"].placements["u2"] = Placement("u2", "triton-2", State.DRAINING, "r1", 0.5)
    assert observing.adopt(world, "u2", 7.0) == {"cat", "deleted"}
    assert world.models["known"].placements["u2"] is kept
    assert world.models["cat"].placements == {"u2": Placement("u2", "triton-2", State.ROUTED, "r1", 7.0)}
    assert world.models["deleted"].gone
    assert world.models["coming"].placements == {}


def test_a_load_that_gets_on_is_work_and_what_was_heard_is_kept() -> None:
    agent = observing.agent(structs.replace(hello(cat=HeldNow("ready", "r1")), seen=0), 1.0)
    agent.told = {"cat": 4}
    assert (agent.held_as_told("cat"), agent.worked) == (None, 0.0)
    assert observing.take(agent, Report({"cow": HeldNow("loading", "r1", progress=5)}), 2.0) == {"cow"}
    assert (agent.held["cow"].progress, agent.worked, agent.seen) == (5, 2.0, 0)
    assert observing.take(agent, Report({"cow": HeldNow("loading", "r1", progress=5)}), 3.0) == set()
    assert agent.worked == 2.0
    assert observing.take(agent, Report(seen=4), 4.0) == {"cat"}
    assert agent.held_as_told("cat") == Held("ready", "r1")
