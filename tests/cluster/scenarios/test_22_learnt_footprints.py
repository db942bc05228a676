"""Scenario 22: a model is declared far too small. What it really needs is learnt, and the next placement respects it."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

MIB = 1 << 20
MB, OWN_MB = 60, 50
"""Of its weights, which its processes share, and of what each process needs for itself once it works."""


def test_a_footprint_is_learnt_and_the_next_placement_respects_it(cluster: Cluster) -> None:
    gateway = cluster.up(
        server("triton", replicas=1, memory_limit="400MiB", overcommitPercent=0),
        model("m", models.heavy(cluster.directory, "m", MB, OWN_MB), replicas=1, memory="1Mi", serving={"replicas": 2}),
    )
    m, triton = cluster.model("m"), cluster.server("triton")
    cluster.until(lambda: len(cluster.pod("triton-0").workers()) == 2, 30, "the daemon has two processes of it")
    with cluster.load(gateway.http, ["m"], 100):
        real = (MB + 2 * OWN_MB) * MIB
        cluster.until(lambda: m.status["artifact"].get("footprintBytes", 0) >= real, 30, "weights are counted once, and the rest for each process")
    learnt = m.status["artifact"]["footprintBytes"]
    cluster.until(lambda: triton.status["memory"]["registeredBytes"] == learnt, what="the server counts what was measured, and not what was declared")
    cluster.apply(model("next", models.quick(cluster.directory, "next"), replicas=1, memory="300Mi"))
    following = cluster.model("next")
    cluster.until(lambda: following.condition("Placed")["reason"] == "NoRoom", what="300 MiB are not there any more")
    assert "memory" in following.condition("Placed")["message"]
    assert m.ready
    cluster.patch("Server", "triton", {"spec": {"replicas": 2}})
    cluster.until(lambda: following.placements == {"triton-1": "Routed"}, 40, "there is room on another replica")
    assert m.placements == {"triton-0": "Routed"}
