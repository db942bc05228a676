"""Scenario 11: who has been held for long enough is told to come again, and the wake goes on without him. What is switched off is not woken."""

from tests.cluster.gateway.calls import call
from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import QUICK, model, server

ROW = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
INFER = "/v2/models/m/infer"
HOLD = 1


def test_the_wake_completes_after_the_hold(cluster: Cluster) -> None:
    uri = models.slow_to_load(cluster.directory, "m", 4.0 * HOLD)
    cluster.controller()
    cluster.apply(server("triton"), model("m", uri, replicas=0, minReplicas=0, autoscaling={**QUICK, "inactiveSeconds": 60, "holdSeconds": HOLD}))
    gateway, m = cluster.gateway(), cluster.model("m")
    cluster.until(lambda: m.status["state"] == "ScaledDown" and cluster.pod("triton-0").ready, 40, "it sleeps, and could wake")
    status, answer, headers = call(gateway.http, "POST", INFER, ROW)
    assert (status, answer["error"]) == (503, f"model m is waking, and has not woken within {HOLD} s; it goes on")
    assert int(headers["retry-after"]) > 0
    assert not m.available  # the deadline was real
    cluster.until(lambda: m.ready, 40, "it has woken, though nobody waits")
    with cluster.load(gateway.http, ["m"], 50, grpc=gateway.grpc) as load:
        cluster.until(lambda: load.good >= 20)
    load.nothing_lost()


def test_who_waits_in_vain_hears_why_there_is_no_place(cluster: Cluster) -> None:
    brief = {**QUICK, "holdSeconds": HOLD}
    cluster.controller()
    cluster.apply(server("triton"), model("m", models.quick(cluster.directory, "m"), requirements=["abacus"], minReplicas=1, autoscaling=brief))
    gateway, m = cluster.gateway(), cluster.model("m")
    cluster.until(lambda: "abacus" in m.condition("Placed").get("message", ""), 40, "it has no place, though a pod has been heard")
    status, answer, _ = call(gateway.http, "POST", INFER, ROW)
    assert (status, answer["error"]) == (
        503, f"model m is waking, and has not woken within {HOLD} s; it goes on. {m.condition('Placed')['message']}",
    )


def test_what_is_switched_off_stays_so(cluster: Cluster) -> None:
    gateway = cluster.up(server("triton"), model("m", models.quick(cluster.directory, "m"), replicas=1))
    m = cluster.model("m")
    cluster.patch("Model", "m", {"spec": {"replicas": 0}})
    cluster.until(lambda: m.status["state"] == "ScaledDown" and not m.placements, what="it is off")
    assert m.condition("Ready")["reason"] == "Off"
    with cluster.load(gateway.http, ["m"], 50, grpc=gateway.grpc) as load:
        cluster.always(lambda: not m.placements and m.target == 0 and m.status["state"] == "ScaledDown", 4, "nothing wakes it")
    assert load.good == 0
    assert all("m is switched off: its Model says replicas: 0" in outcome for outcome in load.lost)
    status, _, headers = call(gateway.http, "POST", INFER, ROW)
    assert (status, int(headers["retry-after"]) > 0) == (503, True)
    cluster.patch("Model", "m", {"spec": {"replicas": 1}})
    cluster.until(lambda: m.ready, what="it is on again")
    assert call(gateway.http, "POST", INFER, ROW)[0] == 200
