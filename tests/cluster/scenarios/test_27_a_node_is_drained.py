"""Scenario 27: `kubectl drain` of a node: pods are evicted one after the other, and each serves until its models do elsewhere.

Fault 22 of Seldon's. A Server of one pod has another one before that goes: a StatefulSet alone would replace it only after.
"""

import threading

import pytest

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

NAMES = ["m0", "m1", "m2", "m3"]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_node_is_drained_under_load(cluster: Cluster, replicas: int) -> None:
    slow = [model(name, models.slow_to_load(cluster.directory, name, 1.5)) for name in NAMES]
    gateway = cluster.up(server("triton", replicas=replicas), *slow)
    first = {pod.name: pod.uid for pod in cluster.pods("triton")}
    cluster.node("b")
    told: list[str] = []
    drain = ("drain", f"{cluster.namespace}-a", "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=100s")
    draining = threading.Thread(target=lambda: told.append(cluster.kubectl(*drain)))

    def moved() -> bool:
        pods = [pod for pod in cluster.pods("triton") if pod.name in first]
        assert sum(pod.uid == first[pod.name] and pod.leaving for pod in pods) <= 1, "more leave at once than the budget allows"
        return len(pods) == replicas and all(pod.uid != first[pod.name] and pod.ready for pod in pods)

    with cluster.load(gateway.http, NAMES, 200, grpc=gateway.grpc) as load:
        draining.start()
        cluster.until(moved, 90, "all pods run elsewhere")
        draining.join(60)
        cluster.until(lambda: all(cluster.model(name).ready for name in NAMES), 20, "the models are ready")
    load.nothing_lost()
    assert told
    assert "drained" in told[0]
    assert {pod.spec["nodeName"] for pod in cluster.pods("triton")} == {f"{cluster.namespace}-b"}


def test_the_node_of_the_only_pod_is_lost(cluster: Cluster) -> None:
    """The StatefulSet waits for the lost pod for ever; the one more takes its models as soon as Kubernetes deletes the lost one."""
    taints = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    soon = [{"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1} for taint in taints]
    cluster.up(server("triton", podTemplate={"spec": {"tolerations": soon}}), model("m", models.quick(cluster.directory, "m")))
    cluster.node("b")
    cluster.nodes["a"].lose()
    cluster.until(lambda: cluster.pod("triton-0").leaving and cluster.pod("triton-1").ready, 60, "there is another pod")
    cluster.until(lambda: cluster.model("m").placements == {"triton-1": "Routed"} and cluster.model("m").ready, 40, "it has the model")
