"""Scenario 5: where only `replicas` is written, there are exactly so many, whatever the load."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import QUICK, model, server


def test_load_never_changes_a_fixed_count(cluster: Cluster) -> None:
    gateway = cluster.up(
        server("triton", replicas=2, modelAutoscaling=QUICK),
        model("m", models.slow_to_answer(cluster.directory, "m", 0.2), replicas=1),
    )
    m = cluster.model("m")
    with cluster.load(gateway.http, ["m"], 60) as load:
        cluster.always(lambda: m.desired == 1 and m.available == 1 and m.ready, 8, "load changes nothing")
    load.nothing_lost()
    cluster.always(lambda: m.desired == 1 and m.available == 1, 5, "nor does silence")
    assert m.owner == "User"
    assert m.condition("Scaling")["reason"] == "Off", m.condition("Scaling")
