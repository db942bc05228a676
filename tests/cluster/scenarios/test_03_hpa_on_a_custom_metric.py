"""Scenario 3: one model per server, both scaled by an HPA on the same custom metric; the scheduler's own rule for load keeps still."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import QUICK, by_rate, hpa, model, server


def test_a_model_and_its_server_follow_one_metric(cluster: Cluster) -> None:
    cluster.custom_metric("Model", "m", "100")
    gateway = cluster.up(
        server("triton"),
        model("m", models.slow_to_answer(cluster.directory, "m", 0.2), replicas=1, maxReplicas=5, server="triton", autoscaling=QUICK),
    )
    metric = by_rate("Model", "m", "100")
    cluster.apply(hpa("Model", "m", 1, 5, metric), hpa("Server", "triton", 1, 5, metric))
    triton, m = cluster.server("triton"), cluster.model("m")
    cluster.until(lambda: m.owner == triton.owner == "HPA", what="both say who scales them")
    with cluster.load(gateway.http, ["m"], 40) as load:
        cluster.always(lambda: m.desired == 1, 6, "its lag is no matter while an HPA has it")
        cluster.custom_metric("Model", "m", "300")
        cluster.until(lambda: m.available == 3 and triton.status.get("readyReplicas") == 3, 40, "both are three")
        cluster.always(lambda: m.desired == 3, 4)
    load.nothing_lost()
    assert m.ready
