"""Scenario 17: replicas are taken away under load, and gateways are slow to acknowledge. None is unloaded before they have."""

import time

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

DELAY = 3.0
"""Seconds by which acknowledgements come late: more than the second of quiet before a model is unloaded."""


def test_no_copy_is_unloaded_before_every_gateway_has_forgotten_it(cluster: Cluster) -> None:
    cluster.controller()
    cluster.apply(server("triton", replicas=5), model("m", models.quick(cluster.directory, "m"), replicas=5))
    proxy = cluster.slow_way()
    gateway = cluster.gateway(by=proxy.address)
    m = cluster.model("m")
    cluster.until(lambda: m.available == 5, 60, "there are five")
    proxy.delay = DELAY
    with cluster.load(gateway.http, ["m"], 200, grpc=gateway.grpc) as load:
        cluster.patch("Model", "m", {"spec": {"replicas": 1}})
        cluster.until(lambda: len(gateway.envoy.clusters()["model/m"]) == 1, 30, "the gateway has forgotten four")
        forgotten = time.monotonic()
        cluster.until(lambda: len(m.placements) < 5, 30, "the first is unloaded")
        assert time.monotonic() - forgotten > DELAY - 1.0  # the first of the four may have been forgotten a little earlier
        cluster.until(lambda: len(m.placements) == 1, 30, "all four are")
    load.nothing_lost()
    assert m.ready
