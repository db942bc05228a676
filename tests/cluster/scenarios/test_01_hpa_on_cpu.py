"""Scenario 1: the seed's own command, on a Server, against the real HPA controller; replicas come and go under load, and nothing is lost."""

import yaml

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

NAMES = ["m0", "m1", "m2", "m3"]


COMMAND = ("autoscale", "server", "triton", "--min=1", "--max=5")


def test_a_server_follows_an_hpa_on_cpu(cluster: Cluster) -> None:
    gateway = cluster.up(
        server("triton", resources={"requests": {"cpu": "100m", "memory": "1Gi"}}),
        *(model(name, models.quick(cluster.directory, name)) for name in NAMES),
    )
    cluster.usage("triton", cpu="10m")
    cluster.kubectl(*COMMAND, "--cpu-percent=50")
    triton = cluster.server("triton")
    cluster.until(lambda: triton.owner == "HPA", what="the Server says who scales it")
    with cluster.load(gateway.http, NAMES, 100, grpc=gateway.grpc) as load:
        cluster.usage("triton", cpu="500m")
        cluster.until(lambda: triton.status.get("readyReplicas") == 5, 40, "there are five")
        cluster.usage("triton", cpu="1m")
        cluster.until(lambda: [pod.name for pod in cluster.pods("triton")] == ["triton-0"], 60, "there is one")
        assert triton.spec["replicas"] == 1
    load.nothing_lost()
    assert all(cluster.model(name).ready for name in NAMES)


def test_the_newer_spelling_makes_the_same_autoscaler(cluster: Cluster) -> None:
    cluster.apply(server("triton"))
    dry = ("--dry-run=server", "--output=yaml")
    old, new = (yaml.safe_load(cluster.kubectl(*COMMAND, option, *dry)) for option in ("--cpu-percent=50", "--cpu=50%"))
    assert new["spec"] == old["spec"]
    assert new["spec"]["scaleTargetRef"] == {"apiVersion": "wakeful.dev/v1alpha1", "kind": "Server", "name": "triton"}
