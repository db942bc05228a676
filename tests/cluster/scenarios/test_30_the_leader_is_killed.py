"""Scenario 30: the leader is killed at seeded points of what it does. The next one goes on from there: no request is lost, the end is the same, and
no gateway ever forgets a model."""

import os
import random
import time
from collections.abc import Callable

from tests.cluster.ground import models
from tests.cluster.ground.api import Object
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server
from tests.cluster.ground.parts import Controller, GatewayParts

LEASE = ("--lease-seconds", "3")
LOADS = {"quick": 0.0, "slow": 0.7, "slower": 1.5}
"""Seconds until each is loaded, so that there is something to be broken off."""
ROUNDS = int(os.environ.get("WAKEFUL_TEST_ROUNDS", "1"))
"""Of four points each; 5 take some minutes."""
SEED = int(os.environ.get("WAKEFUL_TEST_SEED", "30"))
PODS = 2


def test_in_scaling_and_in_drains(cluster: Cluster) -> None:
    crew, gateway, chance = _up(cluster)
    with cluster.load(gateway.http, list(LOADS), 60, grpc=gateway.grpc) as load:
        for _ in range(ROUNDS):
            _do_and_kill(cluster, crew, lambda: _count(cluster, 2), chance.uniform(0, 3))
            _stands(cluster, 2)
            _do_and_kill(cluster, crew, lambda: _count(cluster, 1), chance.uniform(0, 2))
            _stands(cluster, 1)
            _do_and_kill(cluster, crew, lambda: _drain(cluster), chance.uniform(0, 4))
            _stands(cluster, 1)
    load.nothing_lost()
    _nothing_was_forgotten(gateway)


def test_in_a_rollout(cluster: Cluster) -> None:
    crew, gateway, chance = _up(cluster)
    with cluster.load(gateway.http, list(LOADS), 60, grpc=gateway.grpc) as load:
        for number in map(str, range(ROUNDS)):
            _do_and_kill(cluster, crew, lambda number=number: _roll_out(cluster, number), chance.uniform(0, 12))  # type: ignore[misc]  # of a default
            _stands(cluster, 1, number)
    load.nothing_lost()
    _nothing_was_forgotten(gateway)


def _up(cluster: Cluster) -> tuple[list[Controller], GatewayParts, random.Random]:
    crew = [cluster.controller(number, *LEASE) for number in range(2)]
    cluster.apply(
        server("triton", replicas=PODS, podTemplate=_template("")),
        *(model(name, models.slow_to_load(cluster.directory, name, seconds), replicas=1) for name, seconds in LOADS.items()),
    )
    gateway = cluster.gateway()
    _stands(cluster, 1)
    return crew, gateway, random.Random(SEED)


def _do_and_kill(cluster: Cluster, crew: list[Controller], do: Callable[[], None], after: float) -> None:
    """Returns when there is a leader again, and another process to follow it."""
    leader = cluster.until(lambda: next((one for one in crew if one.leads), None), 40, "somebody leads")
    do()
    time.sleep(after)  # the point
    leader.kill()
    leader.start()


def _count(cluster: Cluster, replicas: int) -> None:
    for name in LOADS:
        cluster.patch("Model", name, {"spec": {"replicas": replicas}})


def _roll_out(cluster: Cluster, number: str) -> None:
    cluster.patch("Server", "triton", {"spec": {"podTemplate": _template(number)}})


def _template(number: str) -> Object:
    return {"metadata": {"annotations": {"round": number}}}


def _drain(cluster: Cluster) -> None:
    """The pod that has most models leaves, and another takes its place."""
    homes = [pod for name in LOADS for pod in cluster.model(name).placements]
    cluster.delete("Pod", max(homes, key=homes.count), "v1")


def _stands(cluster: Cluster, replicas: int, number: str = "") -> None:
    """As many copies as there are to be, all routed and known to the gateway, on as many pods as there are to be, all by the newest template."""
    cluster.until(lambda: _pods_stand(cluster, number), 100, "the pods are as they should be")
    cluster.until(lambda: all(_model_stands(cluster, name, replicas) for name in LOADS), 60, f"each model has {replicas}")


def _pods_stand(cluster: Cluster, number: str) -> bool:
    pods = [thing for pod in cluster.pods("triton") if (thing := pod.object)]
    return (
        len(pods) == PODS == cluster.statefulset("triton").spec["replicas"]
        and all(pod["metadata"]["annotations"].get("round") == number and "deletionTimestamp" not in pod["metadata"] for pod in pods)
        and all(pod.ready for pod in cluster.pods("triton")) and cluster.server("triton").ready
    )


def _model_stands(cluster: Cluster, name: str, replicas: int) -> bool:
    one = cluster.model(name)
    addresses = {cluster.pod(pod).ip for pod in one.placements}
    [gateway] = cluster.gateways
    return (
        one.ready and one.available == one.desired == replicas and list(one.placements.values()) == ["Routed"] * replicas
        and {endpoint.rpartition(":")[0] for endpoint in gateway.envoy.clusters()[f"model/{name}"]} == addresses
    )


def _nothing_was_forgotten(gateway: GatewayParts) -> None:
    assert gateway.envoy.stat("cluster_manager.cluster_removed") == 0
    assert {name.split("/")[1] for name in gateway.envoy.clusters()} == LOADS.keys()
