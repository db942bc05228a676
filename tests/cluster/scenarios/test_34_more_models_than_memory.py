"""Scenario 34: a server holds more models than its memory. All answer; who was not asked for a while sleeps, and wakes in its pod."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

NAMES = ["m0", "m1", "m2"]
MB = 100
"""Of each model: two fit into a pod, and the third does not."""


def test_all_models_answer_and_those_that_sleep_wake_where_they_are(cluster: Cluster) -> None:
    gateway = cluster.up(
        server("triton", replicas=2, memory_limit="250MiB", config={"defaults": {"min_residency_secs": 0.5}}),
        *(model(name, models.heavy(cluster.directory, name, MB), replicas=2, memory=f"{MB}Mi") for name in NAMES),
    )
    triton = cluster.server("triton")
    cluster.until(lambda: all(cluster.model(name).available == 2 for name in NAMES), 40, "all copies are there")
    before = {name: cluster.model(name).placements for name in NAMES}
    cluster.until(lambda: triton.status.get("asleepModels"), what="the status says that some sleep")
    with cluster.load(gateway.http, NAMES, 20) as load:
        cluster.until(lambda: all(cluster.events(name, "Evicted") and cluster.events(name, "Woken") for name in NAMES), 60, "each slept and woke")
        assert {name: cluster.model(name).placements for name in NAMES} == before, "they wake where they are"
    load.nothing_lost()
    assert all(cluster.model(name).ready and cluster.model(name).available == 2 for name in NAMES)
    memory = triton.status["memory"]
    assert memory["capacityBytes"] < memory["registeredBytes"] <= 2 * memory["capacityBytes"]
    turns = sum(len(pod.told("evict")) for pod in cluster.pods("triton"))
    assert turns >= 2 * len(NAMES)
    assert len(cluster.events("", "Evicted")) <= 2 * len(NAMES), "one event for a copy, whose count grows"


def test_without_overcommit_no_more_is_registered_than_there_is(cluster: Cluster) -> None:
    cluster.controller()
    cluster.apply(server("triton", replicas=1, memory_limit="300MiB", overcommitPercent=0))
    cluster.apply(*(model(name, models.heavy(cluster.directory, name, MB), replicas=1, memory=f"{MB + 20}Mi") for name in NAMES))
    views = [cluster.model(name) for name in NAMES]
    cluster.until(lambda: sum(view.ready for view in views) == 2, 40, "two fit")
    cluster.until(lambda: any(view.condition("Placed")["reason"] == "NoRoom" for view in views), what="the third says why")
    [third] = [view for view in views if not view.ready]
    assert "memory" in third.condition("Placed")["message"]
    cluster.always(lambda: not third.ready, 2, "it stays out")
