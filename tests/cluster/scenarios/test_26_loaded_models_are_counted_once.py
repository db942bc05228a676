"""Scenario 26: `loadedModels` of a Server is what its live, staying pods serve, while one of them leaves and after. Fault 21 of Seldon's."""

import json
import urllib.request

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

NAMES = [f"m{number}" for number in range(6)]


def _served(cluster: Cluster) -> int:
    """Models that the daemons of pods that stay say to be ready, summed: another source than the controller's own books."""
    return sum(_ready_models(pod.ip) for pod in cluster.pods("triton") if pod.ready and not pod.leaving)


def _ready_models(ip: str) -> int:
    asked = urllib.request.Request(f"http://{ip}:8080/v2/repository/index", b"{}", {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return sum(one["state"] == "READY" for one in json.load(answer))


def _loaded(cluster: Cluster) -> int:
    return int(cluster.server("triton").status.get("loadedModels", 0))


def test_while_a_server_replica_leaves(cluster: Cluster) -> None:
    gate = cluster.directory / "gate"
    cluster.up(server("triton", replicas=2), *(model(name, models.gated(cluster.directory, name, gate)) for name in NAMES))
    placed = [pod for name in NAMES for pod in cluster.model(name).placements]
    leaves, stays = ("triton-0", "triton-1") if placed.count("triton-0") > 1 else ("triton-1", "triton-0")
    there = placed.count(stays)
    cluster.until(lambda: _loaded(cluster) == _served(cluster) == len(NAMES), 20, "all are counted")

    gate.touch()  # what loads from now on waits
    cluster.delete("Pod", leaves, "v1")
    cluster.until(lambda: _loaded(cluster) == there, 20, "those of the leaving pod are not counted")
    cluster.always(lambda: _loaded(cluster) == there == _served(cluster), 3, "nor while they serve on there, and load elsewhere")
    assert cluster.pod(leaves).leaving
    assert all(cluster.model(name).ready for name in NAMES)

    gate.unlink()
    old = cluster.pod(leaves).uid
    cluster.until(lambda: _loaded(cluster) == len(NAMES), 40, "they are counted where they went")
    cluster.until(lambda: cluster.pod(leaves).uid not in ("", old) and cluster.pod(leaves).ready, 60, "another pod has taken its place")
    cluster.always(lambda: _loaded(cluster) == len(NAMES) == _served(cluster), 3, "each once")
