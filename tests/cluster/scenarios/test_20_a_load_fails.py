"""Scenario 20: a model that does not load on one server replica is served by another. One that loads nowhere is tried again, ever less often."""

from datetime import datetime
from itertools import pairwise

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

PAUSES = [0.0, 5.0, 10.0]
"""Seconds before the second try, which is on the other replica at once, and before the next ones."""


def test_a_model_that_fails_on_one_replica_is_placed_on_another(cluster: Cluster) -> None:
    uri = models.refusing(cluster.directory, "m", 'os.environ["POD_NAME"].endswith("-0")')
    gateway = cluster.up(server("triton", replicas=2))
    cluster.until(lambda: cluster.server("triton").status.get("readyReplicas") == 2, 30, "both can be chosen")
    cluster.apply(model("m", uri, replicas=1))
    m = cluster.model("m")
    cluster.until(lambda: m.ready, 30)
    assert m.placements == {"triton-1": "Routed"}
    assert m.holds("Placed")
    [event] = cluster.until(lambda: cluster.events("m", "LoadFailed"), what="an event says that it failed")
    assert "on triton-0" in event["message"]
    assert "this model does not load here" in event["message"]
    with cluster.load(gateway.http, ["m"], 100, grpc=gateway.grpc) as load:
        cluster.always(lambda: m.ready and m.placements == {"triton-1": "Routed"}, 2, "it stays where it serves")
    load.nothing_lost()


def test_one_copy_fails_and_the_others_serve(cluster: Cluster) -> None:
    uri = models.refusing(cluster.directory, "m", 'os.environ["POD_NAME"].endswith("-0")')
    gateway = cluster.up(server("triton", replicas=2), model("m", uri, replicas=2))
    m = cluster.model("m")
    cluster.until(lambda: not m.holds("Placed"), what="it says that one is missing")
    assert m.ready
    assert m.available == 1
    with cluster.load(gateway.http, ["m"], 100, grpc=gateway.grpc) as load:
        cluster.always(lambda: m.ready and m.available == 1, 3, "what serves goes on")
    load.nothing_lost()


def test_where_it_loads_nowhere_the_pauses_grow(cluster: Cluster) -> None:
    cluster.controller()
    cluster.apply(server("triton", replicas=2), model("m", models.refusing(cluster.directory, "m"), replicas=1))
    m = cluster.model("m")
    cluster.until(lambda: len(cluster.events("m", "LoadFailed")) > len(PAUSES), 80, "it was tried several times")
    events = sorted(cluster.events("m", "LoadFailed"), key=lambda event: event["firstTimestamp"])
    times = [datetime.fromisoformat(event["firstTimestamp"]).timestamp() for event in events]
    waited = [after - before for before, after in pairwise(times)]
    assert all(seconds >= least - 1 for seconds, least in zip(waited, PAUSES, strict=False)), waited  # whole seconds in events
    assert {event["message"].split(",")[0] for event in events} == {"on triton-0", "on triton-1"}
    cluster.until(lambda: m.condition("Ready")["reason"] == "LoadFailed", what="it says so")
    said = m.condition("Ready")["message"]
    assert "on triton-0: " in said
    assert "on triton-1: " in said
    assert "this model does not load here" in said
    assert "tried again after" in said
    assert m.status["state"] == "Failed"
    models.quick(cluster.directory, "cured")
    cluster.patch("Model", "m", {"spec": {"storageUri": f"file://{cluster.directory / 'cured'}"}})
    cluster.until(lambda: m.ready, 30, "another revision is tried at once")
