"""Scenario 18: another image, or another template, for a Server of one replica: one pod more first, and nobody waits. Fault 13 of Seldon's."""

from typing import Any

import pytest

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.images import BREAKS_WITH
from tests.cluster.ground.manifests import model, server

NAMES = ["m0", "m1"]


def _up(cluster: Cluster) -> tuple[str, str]:
    gateway = cluster.up(server("triton"), *(model(name, models.quick(cluster.directory, name)) for name in NAMES))
    return gateway.http, gateway.grpc


def _ready(cluster: Cluster) -> set[str]:
    return {pod.name for pod in cluster.pods("triton") if pod.ready}


@pytest.mark.parametrize("change", [
    {"image": "wakeful:next"}, {"podTemplate": {"metadata": {"labels": {"team": "b"}}}}, {"config": {"server": {"max_body": "32MiB"}}},
], ids=["image", "template", "file"])
def test_a_change_of_the_only_pod_is_no_outage(cluster: Cluster, change: dict[str, Any]) -> None:
    http, grpc = _up(cluster)
    old, seen = cluster.pod("triton-0").uid, set[str]()

    def renewed() -> bool:
        ready = _ready(cluster)
        assert ready, "no pod is ready"
        seen.update(ready)
        return ready == {"triton-0"} and cluster.pod("triton-0").uid != old and not cluster.pod("triton-1").exists

    with cluster.load(http, NAMES, 200, grpc=grpc) as load:
        cluster.patch("Server", "triton", {"spec": change})
        cluster.until(renewed, 90, "the pod is renewed, and the one more is gone")
        cluster.until(lambda: all(cluster.model(name).ready for name in NAMES), 20, "the models are ready")
    load.nothing_lost()
    assert seen == {"triton-0", "triton-1"}
    [container] = cluster.pod("triton-0").spec["containers"]
    assert container["image"] == change.get("image", container["image"])
    cluster.until(lambda: cluster.server("triton").condition("Progressing")["status"] == "False", 20, "it is told that all is done")
    assert cluster.statefulset("triton").spec["replicas"] == 1


def test_an_image_that_does_not_start_costs_nothing(cluster: Cluster) -> None:
    http, grpc = _up(cluster)
    old = cluster.pod("triton-0").uid
    with cluster.load(http, NAMES, 100, grpc=grpc) as load:
        cluster.patch("Server", "triton", {"spec": {"image": f"wakeful:{BREAKS_WITH}"}})
        cluster.until(lambda: cluster.pod("triton-1").restarts >= 1, 40, "the new pod has failed, and again")
        cluster.always(lambda: cluster.pod("triton-0").ready and cluster.pod("triton-0").uid == old, 2, "the old pod stays")
        assert cluster.server("triton").ready
        assert cluster.server("triton").condition("Progressing")["reason"] == "RollingOut"
        cluster.patch("Server", "triton", {"spec": {"image": "wakeful:good"}})
        cluster.until(lambda: cluster.pod("triton-0").uid not in ("", old) and _ready(cluster) == {"triton-0"}, 90, "a good image takes its place")
    load.nothing_lost()
