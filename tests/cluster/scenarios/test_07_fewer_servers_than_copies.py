"""Scenario 7: more replicas are asked for than there are servers. Those that fit serve; the rest comes when there is room."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server


def test_what_fits_serves_and_the_rest_follows(cluster: Cluster) -> None:
    gateway = cluster.up(server("triton", replicas=2), model("m", models.quick(cluster.directory, "m"), replicas=1))
    m = cluster.model("m")
    with cluster.load(gateway.http, ["m"], 100, grpc=gateway.grpc) as load:
        cluster.patch("Model", "m", {"spec": {"replicas": 3}})
        cluster.until(lambda: m.available == 2, 20, "two are there")
        cluster.until(lambda: m.condition("Placed")["status"] == "False", what="it says that one is missing")
        assert "triton" in m.condition("Placed")["message"]
        cluster.always(lambda: m.ready, 3, "it stays ready")
        cluster.patch("Server", "triton", {"spec": {"replicas": 3}})
        cluster.until(lambda: m.available == 3 and m.holds("Placed"), 30, "the third has come")
    load.nothing_lost()
