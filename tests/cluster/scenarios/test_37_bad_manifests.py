"""Scenario 37: what is wrong with a manifest is said by the API server itself, and names the field."""

from typing import Any

import pytest

from tests.cluster.ground.api import ApiError, Object
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import TFSIMPLE, VERSION, model, server

URI = "file:///models/m"
BAD: list[tuple[Object, str, str]] = [
    (model("Upper", URI), "metadata.name", "lowercase"),
    (model("dotted.name", URI), "", "DNS label"),
    ({"apiVersion": VERSION, "kind": "Model", "metadata": {"name": "m"}, "spec": {}}, "spec.storageUri", "Required"),
    ({"apiVersion": VERSION, "kind": "Model", "metadata": {"name": "m"}}, "spec", "Required"),
    (model("m", "models/m"), "spec.storageUri", "expected gs://"),
    (model("m", "ftp://host/m"), "spec.storageUri", "expected gs://"),
    (model("m", URI, replicas=-1), "spec.replicas", "greater than or equal to 0"),
    (model("m", URI, replicas=1001), "spec.replicas", "less than or equal to 1000"),
    (model("m", URI, replicas="two"), "spec.replicas", "must be of type integer"),
    (model("m", URI, minReplicas=3, maxReplicas=2), "spec", "minReplicas is above maxReplicas"),
    (model("m", URI, replicas=1, minReplicas=2), "spec", "replicas is below minReplicas"),
    (model("m", URI, replicas=5, maxReplicas=4), "spec", "replicas is above maxReplicas"),
    (model("m", URI, maxReplicas=0), "spec.maxReplicas", "greater than or equal to 1"),
    (model("m", URI, autoscaling={"lagThreshold": 5}), "spec", "autoscaling needs minReplicas or maxReplicas"),
    (model("m", URI, maxReplicas=2, autoscaling={"lagThreshold": 0}), "spec.autoscaling.lagThreshold", "greater than or equal to 1"),
    (model("m", URI, memory="lots"), "spec.memory", "quantity above zero"),
    (model("m", URI, memory=0), "spec.memory", "quantity above zero"),
    (model("m", URI, requirements=["onnx", "onnx"]), "spec.requirements[1]", "Duplicate"),
    (server("1st"), "", "DNS label"),
    (server("triton", minReplicas=2, maxReplicas=1), "spec", "minReplicas is above maxReplicas"),
    (server("triton", terminationGracePeriodSeconds=0), "spec.terminationGracePeriodSeconds", "greater than or equal to 1"),
    (server("triton", surge=2), "spec.surge", "less than or equal to 1"),
    (server("triton", overcommitPercent=-5), "spec.overcommitPercent", "greater than or equal to 0"),
]
UNKNOWN = [
    (model("m", URI, replica=2), "spec.replica"),
    (model("m", URI, minReplicas=1, autoscaling={"lagTreshold": 5}), "spec.autoscaling.lagTreshold"),
    (model("m", URI, serving={"max_bacth": 4}), "spec.serving.max_bacth"),
    (server("triton", capabilites=["onnx"]), "spec.capabilites"),
    (server("triton", config={"server": {"grcp_port": 9000}}), "spec.config.server.grcp_port"),
]


def _refusal(cluster: Cluster, manifest: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        cluster.create(manifest)
    return caught.value


def test_each_bad_manifest_is_refused_and_names_the_field(cluster: Cluster) -> None:
    for manifest, field, text in BAD:
        refusal = _refusal(cluster, manifest)
        assert refusal.code == 422, (manifest, refusal)
        assert any(name.startswith(field) for name in refusal.fields), (manifest, refusal.fields, refusal)
        assert text in refusal.message, (manifest, refusal)


def test_all_that_is_wrong_is_said_at_once(cluster: Cluster) -> None:
    refusal = _refusal(cluster, model("m", "models/m", replicas=-1, memory="lots"))
    assert {"spec.replicas", "spec.storageUri", "spec.memory"} <= set(refusal.fields), refusal


def test_an_unknown_key_is_refused_and_named(cluster: Cluster) -> None:
    for manifest, field in UNKNOWN:
        refusal = _refusal(cluster, manifest)
        assert refusal.code == 400, refusal
        assert f'unknown field "{field}"' in refusal.message, refusal


@pytest.mark.usefixtures("seldon_kinds")
def test_kubectl_says_it_too_and_shows_columns(cluster: Cluster) -> None:
    said = cluster.kubectl("apply", "-f", "-", good=False, stdin=TFSIMPLE.format(group="wakeful.dev").replace("minReplicas: 1", "minReplicas: 2"))
    assert "replicas is below minReplicas" in said
    for group in ("wakeful.dev", "mlops.seldon.io"):
        cluster.kubectl("apply", "-f", "-", stdin=TFSIMPLE.format(group=group))
        cluster.kubectl("scale", f"models.{group}/tfsimple", "--replicas=2")
        cluster.kubectl("apply", "-f", "-", stdin=TFSIMPLE.format(group=group))
    columns = cluster.kubectl("get", "wkm").splitlines()[0].split()
    assert columns == ["NAME", "READY", "STATE", "DESIRED", "AVAILABLE", "SERVER", "AGE"]
    cluster.apply(server("triton"))
    columns = cluster.kubectl("get", "wks").splitlines()[0].split()
    assert columns == ["NAME", "READY", "DESIRED", "REPLICAS", "LOADED", "SCALED-BY", "AGE"]
