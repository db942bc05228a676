"""Scenario 8: an HPA takes a server away under models that want two. They serve with what fits, and have their second copy back when it is back."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import by_resource, hpa, model, server
from tests.cluster.ground.views import View
from wakeful.cluster.planning.limits import Limits

RETRY = Limits().short_retry


def test_models_stay_ready_and_recover_at_once(cluster: Cluster) -> None:
    cluster.usage("triton", cpu="100m")
    fixed, ranged = cluster.model("fixed"), cluster.model("ranged")
    gateway = cluster.up(
        server("triton", replicas=2, resources={"requests": {"cpu": "100m", "memory": "1Gi"}}),
        model("fixed", models.quick(cluster.directory, "fixed"), replicas=2),
        model("ranged", models.quick(cluster.directory, "ranged"), minReplicas=2, maxReplicas=4),
    )

    def have(count: int) -> bool:
        return all(one.available == count and _short(one) == (count < 2) for one in (fixed, ranged))

    cluster.until(lambda: have(2), 40, "both have two copies")
    cluster.apply(hpa("Server", "triton", 1, 2, by_resource("cpu", 100)))
    with cluster.load(gateway.http, ["fixed", "ranged"], 100, grpc=gateway.grpc) as load:
        cluster.usage("triton", cpu="1m")
        cluster.until(lambda: [pod.name for pod in cluster.pods("triton")] == ["triton-0"], 60, "one server is left")
        cluster.until(lambda: have(1), what="each has one, and says that another is missing")
        cluster.always(lambda: fixed.ready and ranged.ready, 4, "they are ready")
        cluster.usage("triton", cpu="500m")
        cluster.until(lambda: cluster.pod("triton-1").ready, 60, "the second server is back")
        cluster.until(lambda: have(2), RETRY, "both have two again")
    load.nothing_lost()
    assert cluster.server("triton").owner == "HPA"


def _short(one: View) -> bool:
    return bool(one.condition("Placed")["status"] == "False")
