"""Scenario 6: load asks for more than there is room for. Nothing changes but a condition that says what is in the way."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import QUICK, model, server


def test_a_full_server_leaves_target_and_readiness_alone(cluster: Cluster) -> None:
    gateway = cluster.up(
        server("triton", replicas=2, memory_limit="300MiB", overcommitPercent=0, capabilities=["python"]),
        model("filler", models.slow_to_answer(cluster.directory, "filler", 0.0, mb=200), replicas=1, memory="200Mi"),
        model("m", models.slow_to_answer(cluster.directory, "m", 0.2, mb=150), minReplicas=1, memory="150Mi", autoscaling=QUICK),
    )
    m = cluster.model("m")
    with cluster.load(gateway.http, ["m"], 40) as load:
        cluster.until(lambda: m.condition("Scaling")["reason"] == "Limited", 30, "it says that it cannot grow")
        assert "memory" in m.condition("Scaling")["message"]
        cluster.always(lambda: m.desired == 1 and m.ready and m.available == 1, 4, "it serves as before")
    load.nothing_lost()
