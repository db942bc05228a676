"""Scenario 24: the streams of agents are reset again and again, fall silent, and their daemons stand still or die while they load. All is as it was
meant to be once they are heard again, and nothing is stuck."""

from collections.abc import Callable

import pytest

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server
from tests.cluster.ground.parts import Controller, GatewayParts
from tests.cluster.ground.proxy import Proxy

NAMES = ["m0", "m1", "m2", "m3"]
RESETS = 20
UNHEARD = 3600.0
"""Seconds by which what agents say is late: longer than anybody waits."""


def _up(cluster: Cluster) -> tuple[Controller, GatewayParts, Proxy]:
    """Two servers, whose agents reach the controller by a way that can be cut."""
    way = cluster.slow_way()
    cluster.agents_by(way)
    gateway = cluster.up(
        server("triton", replicas=2), *(model(name, models.quick(cluster.directory, name), replicas=1) for name in NAMES),
        model("both", models.quick(cluster.directory, "both"), replicas=2),
    )
    cluster.until(lambda: cluster.model("both").available == 2, 30, "one of them is on both servers")
    controller = cluster.processes[0]
    assert isinstance(controller, Controller)
    return controller, gateway, way


def _agents(controller: Controller) -> float:
    return controller.metric("wakeful_controller_agents")


def _homes(cluster: Cluster) -> dict[str, dict[str, str]]:
    return {name: cluster.model(name).placements for name in [*NAMES, "both"]}


def _changes_arrive(cluster: Cluster, gateway: GatewayParts) -> None:
    """Agents do what is wanted now, on both servers."""
    cluster.apply(model("new", models.quick(cluster.directory, "new"), replicas=2))
    cluster.delete("Model", "both")
    cluster.until(lambda: cluster.model("new").available == 2, 30, "a new model is on both servers")
    cluster.until(lambda: not any("both" in pod.models() for pod in cluster.pods("triton")), 30, "both have let go of what was deleted")
    with cluster.load(gateway.http, ["new", *NAMES], 50) as load:
        cluster.always(lambda: True, 1)
    load.nothing_lost()


def test_twenty_resets_move_nothing_and_lose_nothing(cluster: Cluster) -> None:
    controller, gateway, way = _up(cluster)
    homes = _homes(cluster)
    with cluster.load(gateway.http, NAMES, 100, grpc=gateway.grpc) as load:
        for _ in range(RESETS):
            greeted = _streams(cluster)
            way.cut()
            cluster.until(lambda greeted=greeted: _streams(cluster) >= greeted + 2, 20, "both agents are back")  # type: ignore[misc]  # of a default
        cluster.until(lambda: _agents(controller) == 2, what="the controller knows of both")
        assert _homes(cluster) == homes
    load.nothing_lost()
    _changes_arrive(cluster, gateway)


def _streams(cluster: Cluster) -> int:
    """How often an agent has found the leader."""
    return sum(cluster.pod(name).log().count(" leads") for name in ("triton-0", "triton-1"))


def test_a_stream_that_falls_silent_is_made_anew(cluster: Cluster) -> None:
    controller, gateway, way = _up(cluster)
    homes = _homes(cluster)
    with cluster.load(gateway.http, NAMES, 50) as load:
        way.delay = UNHEARD
        cluster.until(lambda: _agents(controller) == 0, 60, "the controller has noticed")
        way.delay = 0.0
        cluster.until(lambda: _agents(controller) == 2, 60, "both agents are back")
        assert _homes(cluster) == homes
    load.nothing_lost()
    _changes_arrive(cluster, gateway)


def test_a_daemon_that_stands_still_catches_up(cluster: Cluster) -> None:
    controller, gateway, _ = _up(cluster)
    with cluster.pod("triton-0").frozen():
        cluster.until(lambda: _agents(controller) == 1, 60, "the controller has noticed")
        cluster.apply(model("meanwhile", models.quick(cluster.directory, "meanwhile"), replicas=1))
        cluster.until(lambda: cluster.model("meanwhile").ready, 30, "a new model is placed where somebody listens")
        assert cluster.model("meanwhile").placements.keys() == {"triton-1"}
    cluster.until(lambda: _agents(controller) == 2, 60, "its agent is back")
    cluster.until(lambda: all(cluster.model(name).ready for name in [*NAMES, "both"]) and cluster.model("both").available == 2, 40, "all serve")
    _changes_arrive(cluster, gateway)


def _deleted(cluster: Cluster, pod: str) -> None:
    cluster.delete("Pod", pod, "v1", gracePeriodSeconds=0)


def _lost_with_its_node(cluster: Cluster, pod: str) -> None:
    name = str(cluster.pod(pod).object["spec"]["nodeName"])  # type: ignore[index]  # it is there
    next(node for node in cluster.nodes.values() if node.name == name).lose()


@pytest.mark.parametrize("end", [_deleted, _lost_with_its_node])
def test_who_dies_while_it_loads_is_replaced(cluster: Cluster, end: Callable[[Cluster, str], None]) -> None:
    cluster.node("b")
    cluster.controller()
    slow = models.slow_to_load(cluster.directory, "slow", 6.0)
    cluster.apply(server("triton", replicas=2))
    cluster.until(lambda: [pod.ready for pod in cluster.pods("triton")] == [True, True], 40, "both servers are ready")
    cluster.apply(model("slow", slow, replicas=1))
    m = cluster.model("slow")
    cluster.until(lambda: list(m.placements.values()) == ["Loading"], 20, "it loads")
    [home] = m.placements
    end(cluster, home)
    [other] = {"triton-0", "triton-1"} - {home}
    cluster.until(lambda: other in m.placements, 30, "it is to be on the other server")
    cluster.until(lambda: m.ready and m.placements.get(other) == "Routed", 30, "it serves there")
