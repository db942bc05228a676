"""Scenario 28: three times as many models as fit are asked for at once, and two that never fit. Others answer; nobody is evicted for nothing."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.cluster.gateway.calls import body, call
from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

MB = 10
FIT, TOO_LARGE = [f"m{number}" for number in range(28)], ["huge0", "huge1"]
LIMIT_MB = 110
"""Room for ten of them, with what a process takes beside its model."""


def _ask(http: str, name: str) -> int:
    return call(http, "POST", f"/v2/models/{name}/infer", body(np.ones((1, 4), np.float32)))[0]


def test_a_storm_has_no_deadlock_and_no_needless_eviction(cluster: Cluster) -> None:
    gateway = cluster.up(
        server("triton", replicas=1, memory_limit=f"{LIMIT_MB}MiB", overcommitPercent=400, config={"defaults": {"min_residency_secs": 0.2}}),
        *(model(name, models.heavy(cluster.directory, name, MB), replicas=1, memory=f"{MB}Mi") for name in FIT), seconds=90,
    )
    huge = models.large(cluster.directory, "huge", LIMIT_MB + 30)
    pod = cluster.pod("triton-0")
    cluster.apply(*(model(name, huge, replicas=1, memory="1Mi") for name in TOO_LARGE))
    for name in TOO_LARGE:
        cluster.until(lambda name=name: cluster.model(name).status["state"] == "Failed", 30, f"{name} is refused")  # type: ignore[misc]  # of a default
        assert "memory" in cluster.model(name).condition("Ready")["message"]
    with ThreadPoolExecutor(len(FIT)) as pool:
        assert list(pool.map(lambda name: _ask(gateway.http, name), FIT)) == [200] * len(FIT)
    with cluster.load(gateway.http, FIT, 8) as load:
        cluster.until(lambda: load.good >= 2 * len(FIT), 60, "each has answered twice")
    load.nothing_lost()
    assert not [event for event in pod.told("evict") if "for huge" in event["text"]], "what can never fit evicts nobody"
    assert all(_ask(gateway.http, name) == 200 for name in FIT[:3])
    count = len(pod.told("evict"))
    with cluster.load(gateway.http, FIT[:3], 20) as calm:
        cluster.always(lambda: len(pod.told("evict")) == count, 3, "who is awake is answered without an eviction")
    calm.nothing_lost()
