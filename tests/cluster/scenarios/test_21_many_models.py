"""Scenario 21: more models than a server may have. Its sums stay what they are, and who finds no room is told why.

925 of them are planned in `tests/cluster/planning/test_many_models.py`; here are as many as a daemon on a busy machine loads in half a minute, or by
hand as many as WAKEFUL_TEST_MODELS says.
"""

import os

from tests.cluster.ground import models
from tests.cluster.ground.api import Object, condition_of
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server

MIB = 1 << 20
COUNT = int(os.environ.get("WAKEFUL_TEST_MODELS", "100"))
DECLARED, CAPACITY = 20, COUNT * 10
"""MiB. With a tenth of overcommit 55 of a hundred fit."""
PATIENCE = float(max(90, COUNT))
"""Seconds for so many to load."""
FIT = int(CAPACITY * 1.1) // DECLARED


def test_sums_stay_what_they_are_and_the_rest_is_refused_clearly(cluster: Cluster) -> None:
    cluster.controller()
    cluster.apply(server("triton", replicas=1, memory_limit=f"{CAPACITY}MiB", overcommitPercent=10))
    triton = cluster.server("triton")
    cluster.until(lambda: triton.ready, 30)
    uri = models.quick(cluster.directory, "m")
    names = [f"m{number:03}" for number in range(COUNT)]
    cluster.apply(*(model(name, uri, replicas=1, memory=f"{DECLARED}Mi") for name in names))
    path = cluster.api.path("wakeful.dev/v1alpha1", "Model", cluster.namespace)

    def split() -> tuple[list[Object], list[Object]]:
        """Models that serve, and those that say that there is no room."""
        assert 0 <= registered() <= CAPACITY * 1.1 * MIB, "neither below nothing nor beyond what may be"
        found = cluster.api.list(path)
        return (
            [one for one in found if condition_of(one, "Ready")["status"] == "True"],
            [one for one in found if condition_of(one, "Placed")["reason"] == "NoRoom"],
        )

    def registered() -> int:
        return int((triton.status.get("memory") or {}).get("registeredBytes", 0))

    def promised() -> int:
        return sum(one["status"]["artifact"].get("footprintBytes") or DECLARED * MIB for one in split()[0])

    cluster.until(lambda: sum(map(len, split())) == COUNT, PATIENCE, "each serves, or says why not")
    serving, refused = split()
    assert len(serving) >= FIT
    assert all("triton: memory on 1 of 1 replica" in condition_of(one, "Placed")["message"] for one in refused)
    cluster.until(lambda: registered() == promised(), what="the sum is that of the models that serve")
    for name in names:
        cluster.delete("Model", name)
    cluster.until(lambda: registered() == 0, PATIENCE, "nothing is left")
