"""Scenario 23: a controller and server pods are killed at the same moment. Who leads next says what is lost, places it again, and keeps counts."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import QUICK, model, server

KEEPS = QUICK | {"inactiveSeconds": 600, "downWindowSeconds": 600}


def test_what_died_with_the_controller_is_placed_again(cluster: Cluster) -> None:
    gateway = cluster.up(
        server("triton", replicas=2, capabilities=["python"]), server("lone", capabilities=["onnx"]),
        model("scaled", models.slow_to_answer(cluster.directory, "scaled", 0.2), server="triton", replicas=1, maxReplicas=2, autoscaling=KEEPS),
        model("only", models.quick(cluster.directory, "only"), server="lone", replicas=1),
    )
    first = cluster.processes[0]
    standby = cluster.controller(1)
    scaled, only = cluster.model("scaled"), cluster.model("only")
    with cluster.load(gateway.http, ["scaled"], 40) as load:
        cluster.until(lambda: scaled.available == 2, 30, "lag has raised the count")
    load.nothing_lost()

    cluster.scheduler.held.set()  # so that what is lost stays lost for a while
    cluster.may_end(first)
    first.kill()
    for pod in ("lone-0", "triton-0"):
        cluster.delete("Pod", pod, "v1", gracePeriodSeconds=0)
    cluster.until(lambda: standby.leads, 30, "the standby leads")
    cluster.until(lambda: only.condition("Ready")["status"] == "False" and only.available == 0, 20, "the lost model is not ready any more")
    cluster.until(lambda: scaled.available == 1, 20, "one copy of the other is lost")
    cluster.always(lambda: scaled.target == 2 and scaled.desired == 2 and scaled.ready and not only.ready, 3, "the count is kept")

    cluster.scheduler.held.clear()
    cluster.until(lambda: only.ready and scaled.available == 2, 40, "all is placed again")
    assert (scaled.target, only.desired) == (2, 1)
    with cluster.load(gateway.http, ["scaled", "only"], 20) as load:
        cluster.always(lambda: scaled.available == 2, 2)
    load.nothing_lost()
