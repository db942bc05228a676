"""Scenario 15: one of two servers leaves under load. And what looks like leaving, but is a container's restart, moves no model."""

from tests.cluster.ground import models
from tests.cluster.ground.api import Object
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

NAMES = ["m0", "m1", "m2", "m3"]


def _up(cluster: Cluster, *more: Object) -> tuple[str, str]:
    quick = (model(name, models.quick(cluster.directory, name), replicas=1) for name in NAMES)
    gateway = cluster.up(server("triton", replicas=2), *quick, *more)
    return gateway.http, gateway.grpc


def test_a_server_is_deleted_under_load(cluster: Cluster) -> None:
    http, grpc = _up(cluster)
    old = cluster.pod("triton-0").uid
    with cluster.load(http, NAMES, 200, grpc=grpc) as load:
        cluster.delete("Pod", "triton-0", "v1")
        cluster.until(lambda: cluster.pod("triton-0").uid not in ("", old) and cluster.pod("triton-0").ready, 60, "another pod has taken its place")
        assert all(cluster.model(name).ready for name in NAMES)
    load.nothing_lost()


def test_prestop_may_be_called_twice(cluster: Cluster) -> None:
    http, grpc = _up(cluster, model("slow", models.slow_to_load(cluster.directory, "slow", 8.0), replicas=1))  # so that the drain takes a while
    [home] = cluster.model("slow").placements
    pod = cluster.pod(home)
    old = pod.uid
    with cluster.load(http, [*NAMES, "slow"], 200, grpc=grpc) as load:
        cluster.delete("Pod", home, "v1")
        pod.run("wakeful", "cluster", "drain")
        cluster.until(lambda: pod.uid not in ("", old) and pod.ready, 60, "another pod has taken its place")
    load.nothing_lost()


def test_prestop_without_a_deletion_moves_nothing(cluster: Cluster) -> None:
    http, grpc = _up(cluster)
    before = {name: cluster.model(name).placements for name in NAMES}
    with cluster.load(http, NAMES, 100, grpc=grpc) as load:
        cluster.pod("triton-0").run("wakeful", "cluster", "drain")
        cluster.always(lambda: {name: cluster.model(name).placements for name in NAMES} == before, 4, "no model moves")
    load.nothing_lost()


def test_a_container_that_is_started_again_has_its_models_again(cluster: Cluster) -> None:
    http, _ = _up(cluster)
    before, pod = {name: cluster.model(name).placements for name in NAMES}, cluster.pod("triton-0")
    pod.kill()
    cluster.until(lambda: pod.restarts == 1 and pod.ready, 40, "the container runs again")
    cluster.until(lambda: all(cluster.model(name).ready for name in NAMES), 40, "all models are ready")
    assert {name: cluster.model(name).placements.keys() for name in NAMES} == {name: placed.keys() for name, placed in before.items()}
    with cluster.load(http, NAMES, 100) as load:
        cluster.always(lambda: True, 2)
    load.nothing_lost()
