"""Scenario 10: a model that may have no replica loses its last one when nobody asks, and whoever asks then waits for one and loses nothing."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import QUICK, model, server
from tests.cluster.ground.parts import GatewayParts

CROWD = 50
BRIEF = {**QUICK, "holdSeconds": 20}
"""For so long after a request was held its model is kept: longer than anything here takes to wake."""


def _crowd(cluster: Cluster, gateway: GatewayParts) -> None:
    """So many at once, over both protocols: all are answered."""
    with cluster.load(gateway.http, ["m"], 1000, grpc=gateway.grpc) as load:
        cluster.until(lambda: load.sent >= CROWD, what="the crowd has come")
    load.nothing_lost()


def _sleeps(cluster: Cluster, gateway: GatewayParts) -> bool:
    m = cluster.model("m")
    return m.status["state"] == "ScaledDown" and not m.placements and "model/m" not in gateway.envoy.clusters()


def test_an_idle_model_goes_and_a_crowd_loads_it_once(cluster: Cluster) -> None:
    uri = models.slow_to_load(cluster.directory, "m", 1.0)
    one = {"max_replicas": 1}  # a crowd would have the daemon copy it
    gateway = cluster.up(server("triton"), model("m", uri, minReplicas=0, autoscaling=BRIEF, serving=one))
    m, pod = cluster.model("m"), cluster.pod("triton-0")
    cluster.until(lambda: _sleeps(cluster, gateway), 40, "it is idle")
    assert m.condition("Ready")["reason"] == "ScaledDown"
    assert pod.ready
    loads = pod.metric("wakeful_load_seconds_count", model="m")
    _crowd(cluster, gateway)
    assert pod.metric("wakeful_load_seconds_count", model="m") == loads + 1
    assert "a request waits for it at the gateway" in m.status["scaling"]["lastStep"]


def test_a_server_without_pods_has_one_again(cluster: Cluster) -> None:
    uri = models.slow_to_load(cluster.directory, "m", 1.0)
    cluster.controller()
    cluster.apply(
        server("triton", replicas=0, minReplicas=0, maxReplicas=2), model("m", uri, replicas=0, minReplicas=0, server="triton", autoscaling=BRIEF),
    )
    gateway = cluster.gateway()
    cluster.until(lambda: _sleeps(cluster, gateway), what="nothing is there")
    cluster.always(lambda: not cluster.pods("triton"), 2, "nobody asks, and nothing comes")
    _crowd(cluster, gateway)
    assert cluster.server("triton").target == 1
    assert [pod.name for pod in cluster.pods("triton")] == ["triton-0"]
    assert cluster.pod("triton-0").metric("wakeful_load_seconds_count", model="m") == 1
