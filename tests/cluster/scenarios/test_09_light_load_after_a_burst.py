"""Scenario 9: a burst raises a count, and a steady light load after it, without any silence, lets it shrink again: once up, once down."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import QUICK, model, server, with_variables

LIGHT = 4.0
"""Requests a second: with 50 ms each a fifth of one replica's time."""


def test_what_a_burst_raised_shrinks_under_light_load_and_stays_small(cluster: Cluster) -> None:
    windows = QUICK | {"inactiveSeconds": 600}  # so that it cannot be silence that shrinks it
    gateway = cluster.up(
        server("triton", replicas=3, podTemplate=with_variables(WAKEFUL_CLUSTER_STATS_PERIOD_SECS="1")),
        model("m", models.slow_to_answer(cluster.directory, "m", 0.05), minReplicas=1, maxReplicas=3, autoscaling=windows,
              serving={"max_replicas": 1, "max_batch_size": 1}),
    )
    m = cluster.model("m")
    targets = [1]

    def target() -> int:
        if (now := m.target or 1) != targets[-1]:
            targets.append(now)
        return now

    with cluster.load(gateway.http, ["m"], 40) as burst:
        cluster.until(lambda: target() >= 2, 60, "the burst has raised it")
    with cluster.load(gateway.http, ["m"], LIGHT) as light:
        cluster.until(lambda: target() == 1, 60, "light load has let it shrink")
        cluster.always(lambda: target() == 1 and m.ready, 10, "it stays so")
    burst.nothing_lost()
    light.nothing_lost()
    top = targets.index(max(targets))
    assert targets == sorted(targets[:top]) + sorted(targets[top:], reverse=True), "no step was taken back"
