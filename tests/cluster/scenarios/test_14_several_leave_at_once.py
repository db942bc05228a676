"""Scenario 14: four of five servers leave at once, and one model fits on none that stays. The others leave without it; it serves to its deadline."""

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

SMALL = [f"m{number}" for number in range(6)]
GRACE = 40
"""Seconds; the deadline is ten earlier."""


def test_one_that_fits_nowhere_holds_up_nobody_else(cluster: Cluster) -> None:
    gateway = cluster.up(
        server("triton", replicas=1, memory_limit="400MiB", grace=GRACE, overcommitPercent=0),
        model("stays", models.slow_to_answer(cluster.directory, "stays", 0.0, mb=200), memory="220Mi"),
    )
    cluster.patch("Server", "triton", {"spec": {"replicas": 5}})
    cluster.until(lambda: all(cluster.pod(f"triton-{number}").ready for number in range(5)), 60, "there are five")
    cluster.apply(
        model("big", models.slow_to_answer(cluster.directory, "big", 0.0, mb=200), memory="220Mi"),
        *(model(name, models.quick(cluster.directory, name), replicas=1, memory="1Mi") for name in SMALL),
    )
    big = cluster.model("big")
    cluster.until(lambda: big.ready and all(cluster.model(name).ready for name in SMALL), 40, "all are ready")
    [home] = big.placements
    assert home != "triton-0"
    with cluster.load(gateway.http, ["stays", *SMALL], 100, grpc=gateway.grpc) as load:
        with cluster.load(gateway.http, ["big"], 20) as served:
            cluster.patch("Server", "triton", {"spec": {"replicas": 1}})
            cluster.until(lambda: {pod.name for pod in cluster.pods("triton")} == {"triton-0", home}, GRACE, "the three others have left")
            assert cluster.pod(home).leaving
            assert big.ready
            assert not cluster.events("big", "DrainDeadline")
        served.nothing_lost()
        cluster.until(lambda: cluster.events("big", "DrainDeadline"), GRACE, "it is unrouted at the deadline, with an event")
        cluster.until(lambda: [pod.name for pod in cluster.pods("triton")] == ["triton-0"], GRACE, "its pod has left too")
        cluster.until(lambda: not big.ready and big.condition("Placed")["status"] == "False", what="it says why it is not served")
        assert "memory" in big.condition("Placed")["message"]
    load.nothing_lost()
