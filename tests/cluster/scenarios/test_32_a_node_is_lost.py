"""Scenario 32: a node goes with all that runs there, and nobody says a word. It comes back with models that have another home by then."""

import urllib.error
import urllib.request

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.load import Answer
from tests.cluster.ground.manifests import model, server
from wakeful.cluster.manifests import HTTP_PORT

WIDE = ["wide0", "wide1"]
"""With a copy on each node."""
NARROW = ["narrow0", "narrow1", "narrow2", "narrow3"]
"""With one copy: some of them on the node that is lost."""
RUN = 0.05
"""Seconds of a run, so that some are under way whenever the node goes."""
RATE = 60.0


def test_what_was_in_flight_is_lost_and_nothing_else(cluster: Cluster) -> None:
    cluster.node("b")
    cluster.until(lambda: "-b " in cluster.kubectl("get", "nodes"), what="both nodes are there")
    cluster.controller()
    cluster.apply(server("triton", replicas=2))
    triton = cluster.server("triton")
    cluster.until(lambda: triton.status.get("readyReplicas") == 2 and not triton.holds("Degraded"), 60, "both pods are there before the models")
    gateway = cluster.gateway()
    cluster.apply(
        *(model(name, models.slow_to_answer(cluster.directory, name, RUN), replicas=2) for name in WIDE),
        *(model(name, models.quick(cluster.directory, name), replicas=1) for name in NARROW),
    )
    cluster.until(lambda: all(cluster.model(name).available == 2 for name in WIDE), 60, "two copies of each wide one")
    cluster.until(lambda: all(cluster.model(name).ready for name in NARROW), 60, "one of each narrow one")
    lost, other = sorted(cluster.pods("triton"), key=lambda pod: pod.spec["nodeName"] != cluster.nodes["b"].name)
    went = [name for name in NARROW if lost.name in cluster.model(name).placements]
    assert 0 < len(went) < len(NARROW)
    uid, address = lost.uid, lost.ip

    with cluster.load(gateway.http, WIDE, RATE) as load:
        cluster.until(lambda: load.good > RATE, what="the load is under way")
        before = load.sent
        cluster.nodes["b"].lose()
        gone = load.sent
        cluster.until(lambda: all(_home(cluster, name) == other.name for name in went), 60, "its models have another home")
        cluster.until(lambda: all(cluster.model(name).ready for name in NARROW), 40, "they are ready there")
    _only_in_flight(load.answers, before, gone)
    assert "out-of-service" in triton.condition("Degraded")["message"]

    with cluster.load(gateway.http, [*WIDE, *NARROW], RATE) as load:
        cluster.nodes["b"].come_back()
        cluster.until(lambda: lost.ready and all(cluster.model(name).available == 2 for name in WIDE), 60, "it is there again, and used")
        cluster.until(lambda: not any(_answers(address, name) for name in went), 30, "what has another home is unloaded")
    load.nothing_lost()
    assert lost.uid == uid
    cluster.until(lambda: all(_home(cluster, name) == other.name for name in went), 30, "each is where it was put, and nowhere else")


def _home(cluster: Cluster, name: str) -> str:
    """Where it is served, and nowhere else."""
    placements = cluster.model(name).placements
    return next(iter(placements)) if list(placements.values()) == ["Routed"] else ""


def _only_in_flight(answers: list[Answer], before: int, gone: int) -> None:
    """Requests that were under way when the node went, from the first to the last that may have reached it."""
    lost = [answer for answer in answers if answer.outcome != "ok"]
    first, last = (before - 1) / RATE - 10 * RUN, gone / RATE
    assert not [answer for answer in lost if not first <= answer.due <= last], (first, last, lost[:5])


def _answers(address: str, name: str) -> bool:
    """Does the daemon itself serve the model?"""
    try:
        with urllib.request.urlopen(f"http://{address}:{HTTP_PORT}/v2/models/{name}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.HTTPError, OSError):
        return False
