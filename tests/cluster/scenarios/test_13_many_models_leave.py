"""Scenario 13: a server that holds many models leaves. They are loaded elsewhere a few at a time, within the grace; who stalls is passed over."""

import os
from pathlib import Path

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server, with_variables
from wakeful.cluster.agent import memory

MANY = int(os.environ.get("WAKEFUL_TEST_MODELS", "100"))
"""The design's 1,000 load in minutes, and a scenario has two: by hand."""
PATIENCE = float(max(100, MANY))
"""Seconds for so many to load."""
AT_ONCE = 8
"""`Limits.drain_loads`."""


def _loading(state: Path) -> int:
    """Models that an agent was told to have and has not loaded yet, as it has written both down."""
    remembered = memory.recall(state)
    return len(remembered.models.keys() - remembered.proven.keys()) if remembered is not None else 0


def test_many_models_move_eight_at_a_time(cluster: Cluster) -> None:
    names = [f"m{number:03}" for number in range(MANY)]
    ample = with_variables(WAKEFUL_CLUSTER_MAX_LOADS=str(MANY))  # so that it is the plan of the drain that holds loads back
    gateway = cluster.up(
        server("triton", replicas=1, memory_limit="8GiB", grace=int(PATIENCE), podTemplate=ample),
        *(model(name, models.quick(cluster.directory, name), memory="1Mi") for name in names), seconds=PATIENCE,
    )
    cluster.patch("Server", "triton", {"spec": {"replicas": 2}})
    cluster.until(lambda: cluster.pod("triton-1").ready, 40, "the other one is there")
    state = Path(f"/proc/{cluster.pod('triton-1').pid()}/root/var/lib/wakeful")
    first, most = cluster.pod("triton-0").uid, 0

    def left() -> bool:
        nonlocal most
        most = max(most, _loading(state))
        return cluster.pod("triton-0").uid != first

    with cluster.load(gateway.http, names, 50) as load:
        cluster.delete("Pod", "triton-0", "v1")
        cluster.until(left, PATIENCE, "its pod has ended")
    load.nothing_lost()
    assert 1 < most <= AT_ONCE
    assert not cluster.events(reason="DrainDeadline")


def test_a_target_that_stalls_is_passed_over(cluster: Cluster) -> None:
    names = [f"m{number}" for number in range(AT_ONCE + 2)]
    gateway = cluster.up(
        server("triton", replicas=1, grace=100),
        *(model(name, models.stalling(cluster.directory, name, 'os.environ["POD_NAME"].endswith("-1")')) for name in names), seconds=60,
    )
    cluster.patch("Server", "triton", {"spec": {"replicas": 3}})
    cluster.until(lambda: cluster.pod("triton-1").ready and cluster.pod("triton-2").ready, 40, "two others are there")
    first = cluster.pod("triton-0").uid
    with cluster.load(gateway.http, names, 50) as load:
        cluster.delete("Pod", "triton-0", "v1")
        cluster.until(lambda: cluster.pod("triton-0").uid != first, 100, "its pod has ended")
        assert not cluster.events(reason="DrainDeadline")
    load.nothing_lost()
    assert all(cluster.model(name).placements.get("triton-2") == "Routed" for name in names)
