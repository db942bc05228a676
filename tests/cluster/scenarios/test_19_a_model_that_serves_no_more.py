"""Scenario 19: what has loaded once does not serve any more. Callers hear why, the status says so, and the model is tried on another replica."""

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tests.cluster.gateway.calls import body, call
from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server
from tests.cluster.ground.views import PodView, View

SLEEPY = {"idle_timeout_secs": 0.5, "min_residency_secs": 0.1}
DEATHS = 3
"""In a minute, after which an agent says that the model does not serve."""
PODS = {"triton-0", "triton-1"}
CAUSE = "a Python model is a directory with"
LOSE = "find /var/lib/wakeful -name 'wakeful_model.py*' -exec rm -f {} +"
"""Files of a model that was fetched."""


def _ask(http: str) -> tuple[int, Any]:
    return call(http, "POST", "/v2/models/m/infer", body(np.ones((1, 4), np.float32)))[:2]


def _where(cluster: Cluster, m: View) -> tuple[PodView, str]:
    """The pod that has it, and the other one's name."""
    [name] = m.placements
    [other] = PODS - {name}
    return cluster.pod(name), other


def _asleep(cluster: Cluster, m: View) -> tuple[PodView, str]:
    pod, other = _where(cluster, m)
    cluster.until(lambda: cluster.events("m", "Evicted"), 30, "it has been put to sleep")
    cluster.until(lambda: not pod.workers(), 10, "nothing of it runs")
    return pod, other


def test_files_are_gone_and_another_replica_takes_over(cluster: Cluster) -> None:
    gateway = cluster.up(
        server("triton", replicas=2), model("m", models.slow_to_load(cluster.directory, "m", 0.0), replicas=1, serving=SLEEPY),
    )
    m = cluster.model("m")
    pod, other = _asleep(cluster, m)
    pod.run("sh", "-c", LOSE)
    status, said = _ask(gateway.http)
    assert status == 503, said
    assert CAUSE in said["error"] or "The Model's status says why" in said["error"], said  # it may be unrouted before Envoy has tried it again
    cluster.until(lambda: any(CAUSE in event["message"] for event in cluster.events("m", "LoadFailed")), what="an event names the cause")
    cluster.until(lambda: m.ready and m.placements.get(other) == "Routed", 30, "another replica has taken over")
    with cluster.load(gateway.http, ["m"], 50, grpc=gateway.grpc) as load:
        cluster.always(lambda: m.ready, 2, "it stays there")
    load.nothing_lost()


def test_where_it_loads_nowhere_any_more_the_status_says_so(cluster: Cluster) -> None:
    uri = models.slow_to_load(cluster.directory, "m", 0.0)
    gateway = cluster.up(server("triton", replicas=2), model("m", uri, replicas=1, serving=SLEEPY))
    m = cluster.model("m")
    pod, other = _asleep(cluster, m)
    shutil.rmtree(Path(uri.removeprefix("file://")))
    pod.run("sh", "-c", LOSE)
    status, said = _ask(gateway.http)
    assert status == 503, said
    cluster.until(lambda: m.condition("Ready")["reason"] == "LoadFailed", 30, "it is not ready, and says why")
    for name in (pod.name, other):
        assert f"on {name}: " in m.condition("Ready")["message"]
    assert m.status["state"] == "Failed"
    status, said = _ask(gateway.http)
    assert status == 503, said


def test_a_model_whose_processes_die_again_and_again_is_moved(cluster: Cluster) -> None:
    gateway = cluster.up(server("triton", replicas=2), model("m", models.quick(cluster.directory, "m"), replicas=1))
    m = cluster.model("m")
    pod, other = _where(cluster, m)
    with cluster.load(gateway.http, ["m"], 20) as load:
        for times in range(DEATHS):
            cluster.until(lambda times=times: len(pod.told("load", "m")) > times, 30, "it is loaded")  # type: ignore[misc]  # of a default
            for pid in pod.workers():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            cluster.until(lambda times=times: len(pod.told("restart", "m")) > times, 30, "its daemon has noticed")  # type: ignore[misc]  # of a default
        cluster.until(lambda: m.placements == {other: "Routed"} and m.ready, 60, "it is served by the other replica")
    assert load.good
    [event] = cluster.until(lambda: cluster.events("m", "LoadFailed"), what="the event is written")
    assert f"have died {DEATHS} times" in event["message"]
    with cluster.load(gateway.http, ["m"], 50) as after:
        cluster.always(lambda: m.ready, 2, "it stays there")
    after.nothing_lost()
