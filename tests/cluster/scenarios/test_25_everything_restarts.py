"""Scenario 25: everything is restarted at once, and the count is what it was: a count between a model's bounds is no less than one at a bound."""

from collections.abc import Callable

import pytest

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server
from tests.cluster.ground.parts import Controller
from tests.cluster.ground.views import View

COPIES = 5


def _nodes_restart(cluster: Cluster) -> None:
    """Power is lost for a moment: pods are the same afterwards, with containers started anew."""
    cluster.node().lose()
    cluster.plane.restart_apiserver()
    cluster.node().come_back()


def _pods_are_replaced(cluster: Cluster) -> None:
    """Nothing that daemons had on disk is left."""
    cluster.plane.restart_apiserver()
    for pod in cluster.pods("triton"):
        cluster.delete("Pod", pod.name, "v1", gracePeriodSeconds=0)


@pytest.mark.parametrize("restart", [_nodes_restart, _pods_are_replaced])
def test_the_count_is_what_it_was(cluster: Cluster, restart: Callable[[Cluster], None]) -> None:
    gateway = cluster.up(
        server("triton", replicas=COPIES), model("m", models.quick(cluster.directory, "m"), replicas=COPIES, minReplicas=2), seconds=60,
    )
    [controller] = cluster.processes
    assert isinstance(controller, Controller)
    m = cluster.model("m")
    cluster.until(lambda: m.available == COPIES, 40, "all copies are there")
    before = _lives(cluster)

    cluster.may_end(controller)
    controller.kill()
    restart(cluster)
    controller.start()
    gateway.restart()
    cluster.until(lambda: controller.leads, 40, "the controller leads again")
    cluster.until(lambda: _lives(cluster).items().isdisjoint(before.items()), 60, "all servers have restarted")
    cluster.until(lambda: controller.metric("wakeful_controller_agents") == COPIES, 60, "and are heard")
    cluster.until(lambda: m.ready and m.available == COPIES and _homes(m) == {uid for uid, _ in _lives(cluster).values()}, 40, "all copies are there")
    cluster.always(lambda: m.desired == m.available == len(m.placements) == COPIES, 3, "and they stay")
    with cluster.load(gateway.http, ["m"], 50) as load:
        cluster.always(lambda: True, 1)
    load.nothing_lost()


def _homes(m: View) -> set[str]:
    """Uids of the pods that have a copy."""
    return {placed["uid"] for placed in m.status["placements"]}


def _lives(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Each pod and its process, all five of them. Raises KeyError while there are not as many."""
    lives = {pod.name: (pod.uid, pod.pid()) for pod in cluster.pods("triton")}
    return {name: lives[name] for name in (f"triton-{number}" for number in range(COPIES))}
