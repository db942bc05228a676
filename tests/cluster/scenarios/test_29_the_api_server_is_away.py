"""Scenario 29: the API server is away, as by a crash or standing still. No request is lost, and what was written to it afterwards happens."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

NAMES = ["m0", "m1", "m2"]
CRASH = 10.0
"""Seconds until it is started again."""
STANDSTILL = 20.0
"""Seconds: four times the Lease of the tests, and three times what nodes may be silent."""


def test_it_is_killed_and_comes_back(cluster: Cluster) -> None:
    """Within the time of the Lease: the leader stays."""
    controller = cluster.controller(0, "--lease-seconds", "90")
    _apply(cluster)
    gateway = cluster.gateway()
    _all_have(cluster, 1)
    with cluster.load(gateway.http, NAMES, 100, grpc=gateway.grpc) as load:
        cluster.plane.restart_apiserver(CRASH)
        _grow(cluster)
    load.nothing_lost()
    assert controller.log.count("leads, epoch") == 1


def test_it_stands_still(cluster: Cluster) -> None:
    """For longer than the Lease: nobody leads until it goes on."""
    controller = cluster.controller()
    _apply(cluster)
    gateway = cluster.gateway()
    _all_have(cluster, 1)
    with cluster.load(gateway.http, NAMES, 100, grpc=gateway.grpc) as load:
        cluster.plane.apiserver.freeze()
        try:
            cluster.always(lambda: not load.lost, STANDSTILL)
            assert not controller.leads
        finally:
            cluster.plane.apiserver.thaw()
        cluster.until(lambda: controller.leads, 40, "somebody leads again")
        _grow(cluster)
    load.nothing_lost()


def _apply(cluster: Cluster) -> None:
    cluster.apply(server("triton", replicas=2), *(model(name, models.quick(cluster.directory, name), replicas=1) for name in NAMES))


def _all_have(cluster: Cluster, count: int) -> None:
    cluster.until(lambda: all(cluster.model(name).ready and cluster.model(name).available == count for name in NAMES), 60, f"all have {count}")


def _grow(cluster: Cluster) -> None:
    for name in NAMES:
        cluster.patch("Model", name, {"spec": {"replicas": 2}})
    _all_have(cluster, 2)
