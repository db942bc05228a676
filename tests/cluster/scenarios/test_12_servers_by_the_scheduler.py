"""Scenario 12: the scheduler gives a Server with bounds the replicas that its models want, and takes them away. Without bounds, or once an HPA is
there, the count is none of its business."""

from typing import Any

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import by_resource, hpa, model, server

WINDOW = 2
"""Seconds for which a server must have been dispensable."""


def _up(cluster: Cluster, replicas: int = 1, **bounds: Any) -> str:
    cluster.controller(0, "--server-window", str(WINDOW))
    cluster.usage("triton", cpu="100m")
    cluster.apply(
        server("triton", replicas=replicas, resources={"requests": {"cpu": "100m", "memory": "1Gi"}}, **bounds),
        model("m", models.quick(cluster.directory, "m"), replicas=1),
    )
    cluster.until(lambda: cluster.model("m").ready, 40, "the model is ready")
    return cluster.gateway().http


def _pods(cluster: Cluster) -> list[str]:
    return [pod.name for pod in cluster.pods("triton")]


def test_without_bounds_it_is_left_alone(cluster: Cluster) -> None:
    _up(cluster, replicas=2)
    triton = cluster.server("triton")
    cluster.until(lambda: triton.status.get("readyReplicas") == 2, 40, "there are two")
    cluster.delete("Model", "m")
    cluster.until(lambda: triton.status.get("loadedModels", 0) == 0, what="nothing is there any more")
    cluster.always(lambda: len(_pods(cluster)) == 2 and triton.owner == "User", 4 * WINDOW, "both stay")


def test_with_bounds_it_follows_its_models(cluster: Cluster) -> None:
    http = _up(cluster, minReplicas=1, maxReplicas=3)
    triton, m = cluster.server("triton"), cluster.model("m")
    with cluster.load(http, ["m"], 50) as load:
        cluster.patch("Model", "m", {"spec": {"replicas": 4}})
        cluster.until(lambda: m.available == 3, 60, "there are three, the most that there may be")
        cluster.patch("Model", "m", {"spec": {"replicas": 1}})
        cluster.until(lambda: _pods(cluster) == ["triton-0"], 60, "one is left")
    load.nothing_lost()
    assert triton.spec["replicas"] == 1
    assert triton.owner == "Scheduler"


def test_once_an_hpa_is_there_the_count_is_its_own(cluster: Cluster) -> None:
    _up(cluster, minReplicas=1, maxReplicas=3)
    triton = cluster.server("triton")
    cluster.until(lambda: triton.owner == "Scheduler", what="the scheduler decides")
    cluster.apply(hpa("Server", "triton", 2, 3, by_resource("cpu", 100)))
    cluster.until(lambda: triton.owner == "HPA" and triton.status.get("readyReplicas") == 2, 60, "the HPA has its least")
    cluster.always(lambda: len(_pods(cluster)) == 2, 4 * WINDOW, "both stay, although one would do")
    cluster.patch("Model", "m", {"spec": {"replicas": 3}})
    cluster.until(lambda: cluster.model("m").available == 2, 40, "there is room for two")
    cluster.always(lambda: len(_pods(cluster)) == 2, 16, "none is added, although the model lacks one")
