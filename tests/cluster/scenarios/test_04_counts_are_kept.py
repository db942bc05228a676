"""Scenario 4: the seed's manifest. Load raises its count; the spec stays as it was written, and only another `replicas` there resets the count."""

import json
from typing import Any

import pytest

from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import server, with_variables
from tests.cluster.ground.views import View

SEED = """
apiVersion: {group}/v1alpha1
kind: Model
metadata:
  name: tfsimple
spec:
  storageUri: "{uri}"
  requirements:
  - tensorflow
  memory: {memory}
  minReplicas: 1
  replicas: {replicas}
"""
VARIABLES = {
    "SELDON_MODEL_INFERENCE_LAG_THRESHOLD": "3", "SELDON_MODEL_INACTIVE_SECONDS_THRESHOLD": "600", "SELDON_SCALING_STATS_PERIOD_SECONDS": "0.5",
}
"""As the seed names them, on the inference server."""


def _server() -> dict[str, Any]:
    return server(
        "triton", replicas=2, capabilities=["tensorflow", "python"], modelAutoscaling={"stableSeconds": 1, "upCooldownSeconds": 1},
        podTemplate=with_variables(**VARIABLES),
    )


@pytest.mark.parametrize("group", ["wakeful.dev", "mlops.seldon.io"])
@pytest.mark.usefixtures("seldon_kinds")
def test_load_raises_the_count_and_the_spec_stays(cluster: Cluster, group: str) -> None:
    uri = models.slow_to_answer(cluster.directory, "tfsimple", 0.2)
    cluster.controller(0, "--seldon")
    cluster.apply(_server())
    gateway = cluster.gateway()
    model = cluster.view("Model", "tfsimple", f"{group}/v1alpha1")

    def apply(memory: str = "100Ki", replicas: int = 1) -> None:
        cluster.kubectl("apply", "-f", "-", stdin=SEED.format(group=group, uri=uri, memory=memory, replicas=replicas))

    apply()
    cluster.until(lambda: model.ready and model.available == 1, 40, "one replica is there")
    written = model.spec
    with cluster.load(gateway.http, ["tfsimple"], 40) as load:
        cluster.until(lambda: model.available == 2, 30, "lag has raised it")
    load.nothing_lost()
    _is_kept(cluster, model, written)
    apply()
    _is_kept(cluster, model, written)
    apply(memory="120Ki")
    _is_kept(cluster, model, written | {"memory": "120Ki"})
    apply(memory="120Ki", replicas=2)
    cluster.until(lambda: model.available == 2)
    apply(memory="120Ki", replicas=1)
    cluster.until(lambda: model.available == 1 and model.target == 1, what="another count in the spec is the count")


def _is_kept(cluster: Cluster, model: View, spec: dict[str, Any]) -> None:
    cluster.always(lambda: model.target == 2 and model.available == 2 and model.ready, 2, "the count is kept")
    assert json.dumps(model.spec, sort_keys=True) == json.dumps(spec, sort_keys=True)
