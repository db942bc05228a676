"""Scenario 2: an HPA on memory; and a Server whose count is above its own maximum works on, and says who decides."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import by_resource, hpa, model, server


def test_an_hpa_on_memory_may_go_beyond_the_servers_own_bound(cluster: Cluster) -> None:
    cluster.up(
        server("triton", maxReplicas=2, resources={"requests": {"cpu": "100m", "memory": "100Mi"}}),
        model("m", models.quick(cluster.directory, "m")),
    )
    triton = cluster.server("triton")
    assert triton.owner == "Scheduler"
    cluster.usage("triton", memory="50Mi")
    cluster.apply(hpa("Server", "triton", 1, 3, by_resource("memory", 50)))
    cluster.until(lambda: triton.owner == "HPA", what="the Server says who scales it")
    cluster.usage("triton", memory="190Mi")
    cluster.until(lambda: triton.status.get("readyReplicas") == 3, 40, "the HPA has its three")
    cluster.until(lambda: triton.ready and triton.spec["replicas"] == 3, what="the Server is ready all the same")
    assert triton.holds("ScaleOwner"), triton.condition("ScaleOwner")
    assert "HPA" in triton.condition("ScaleOwner")["message"] + triton.condition("ScaleOwner")["reason"]
    assert cluster.model("m").ready
