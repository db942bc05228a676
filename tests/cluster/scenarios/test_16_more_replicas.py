"""Scenario 16: replicas are added under load. No request reaches one that is not ready."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

LOADS = {"quick": 0.2, "middling": 1.0, "slow": 2.0}
"""Seconds."""


def test_replicas_are_added_under_load(cluster: Cluster) -> None:
    gateway = cluster.up(
        server("triton", replicas=5),
        *(model(name, models.slow_to_load(cluster.directory, name, seconds), replicas=1) for name, seconds in LOADS.items()),
    )
    with cluster.load(gateway.http, list(LOADS), 150, grpc=gateway.grpc) as load:
        for name in LOADS:
            cluster.patch("Model", name, {"spec": {"replicas": 5}})
        cluster.until(lambda: all(cluster.model(name).available == 5 for name in LOADS), 60, "there are five of each")
        cluster.always(lambda: True, 1)
    load.nothing_lost()
