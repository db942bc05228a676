"""Seldon's manifests, made into ours: nothing is dropped without a word."""

from typing import Any

import pytest

from wakeful.cluster.dialects import DIALECTS, as_told
from wakeful.cluster.dialects.seldon import CAPABILITIES, converted, model, server
from wakeful.cluster.planning.world import Bounds
from wakeful.cluster.seldon_schemas import MODEL_SPEC, SERVER_SPEC


def seldons(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "mlops.seldon.io/v1alpha1", "kind": kind, "metadata": {"name": "one", "uid": "u"}, "spec": spec}


def a_model(**spec: Any) -> dict[str, Any]:
    return seldons("Model", **{"storageUri": "gs://b/one", **spec})


def a_server(**spec: Any) -> dict[str, Any]:
    return seldons("Server", **{"serverConfig": "triton", **spec})


def test_the_seeds_model() -> None:
    spec = model(a_model(requirements=["tensorflow"], memory="100Ki", minReplicas=1, replicas=1))

    assert spec.dialect == "seldon"
    assert (spec.requirements, spec.memory, spec.bounds) == (frozenset({"tensorflow"}), 102400, Bounds(1, 1))
    assert spec.errors == spec.notes == ()


def test_a_bound_of_0_is_not_set() -> None:
    assert model(a_model(replicas=0, minReplicas=0, maxReplicas=0)).bounds == Bounds(0, None, None)


def test_the_model_type_is_a_requirement() -> None:
    assert model(a_model(modelType="xgboost", requirements=["sklearn ", "xgboost"])).requirements == {"sklearn", "xgboost"}


def test_the_artifact_version_picks_the_folder() -> None:
    assert model(a_model(artifactVersion=3)).serving == {"versions": [3]}
    assert "spec.serving.versions" in model(a_model(artifactVersion=0)).errors[0]


@pytest.mark.parametrize("field", ["explainer", "llm"])
def test_what_cannot_be_served_is_an_error(field: str) -> None:
    (told,) = model(a_model(**{field: {"modelRef": "other"}})).errors

    assert told.startswith(f"spec.{field}: not supported: ")


MODEL_VALUES: dict[str, Any] = {
    "storageUri": "gs://b/two", "modelType": "onnx", "artifactVersion": 2, "schemaUri": "x", "secretName": "s", "requirements": ["a"],
    "memory": "1Mi", "replicas": 2, "minReplicas": 1, "maxReplicas": 3, "server": "s", "preloaded": True, "dedicated": True,
    "logger": {"percent": 1}, "explainer": {"type": "x"}, "llm": {"modelRef": "x"}, "dataflow": {"cleanTopicsOnDelete": True},
    "parameters": [{"name": "a", "value": "b"}],
}
SERVER_VALUES: dict[str, Any] = {
    "serverConfig": "mlserver", "capabilities": ["a"], "extraCapabilities": ["b"], "replicas": 2, "minReplicas": 1, "maxReplicas": 3,
    "podSpec": {"nodeSelector": {"a": "b"}}, "imageOverrides": {"agent": {}}, "deploymentStrategy": {"type": "Recreate"},
    "statefulSetPersistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}, "disableAutoUpdate": True,
}


def test_no_field_is_dropped_without_a_word() -> None:
    """Each field of Seldon's schemas changes the spec, or is told."""
    assert MODEL_VALUES.keys() == MODEL_SPEC.keys()
    assert SERVER_VALUES.keys() == SERVER_SPEC.keys()
    for field, value in MODEL_VALUES.items():
        assert model(a_model(**{field: value})) != model(a_model()), field
    for field, value in SERVER_VALUES.items():
        assert server(a_server(**{field: value})) != server(a_server()), field


def test_a_server_config_is_a_list_of_capabilities() -> None:
    assert server(a_server()).capabilities == frozenset(CAPABILITIES["triton"])
    assert server(a_server(serverConfig="mlserver", extraCapabilities=["mine"])).capabilities == frozenset({*CAPABILITIES["mlserver"], "mine"})
    assert server(a_server(capabilities=["a"])).capabilities == frozenset({"a"})
    assert "spec.serverConfig: expected mlserver or triton" in server(a_server(serverConfig="mine")).errors[0]


def test_containers_become_one_and_thresholds_come_along() -> None:
    pod = {
        "terminationGracePeriodSeconds": 30, "nodeSelector": {"a": "b"},
        "containers": [
            {"name": "triton", "image": "theirs", "resources": {"limits": {"memory": "1Gi"}}, "env": [{"name": "A", "value": "1"}]},
            {"name": "agent", "image": "theirs", "env": [{"name": "SELDON_MODEL_INFERENCE_LAG_THRESHOLD", "value": "5"}]},
            {"name": "beside", "image": "mine"},
        ],
    }
    spec = server(a_server(podSpec=pod))

    assert spec.grace == 30
    assert spec.pod_template == {"spec": {"nodeSelector": {"a": "b"}, "containers": [
        {"name": "wakeful", "resources": {"limits": {"memory": "1Gi"}}, "env": [
            {"name": "A", "value": "1"}, {"name": "SELDON_MODEL_INFERENCE_LAG_THRESHOLD", "value": "5"}]},
        {"name": "beside", "image": "mine"},
    ]}}
    assert [note.partition(":")[0] for note in spec.notes] == ["spec.podSpec.containers[0].image", "spec.podSpec.containers[1].image"]


def test_what_is_not_seldons_is_refused_with_what_was_expected() -> None:
    with pytest.raises(ValueError, match=r"expected a Model or a Server of mlops\.seldon\.io/v1alpha1, got Pipeline of mlops\.seldon\.io/v1alpha1"):
        converted(seldons("Pipeline"))


def test_statuses_have_the_condition_that_seldons_tools_wait_for() -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Placed", "status": "True"}]}

    assert [one["type"] for one in as_told("seldon", "Model", status)["conditions"]] == ["Ready", "Placed", "ModelReady"]
    assert as_told("wakeful", "Model", status) == status
    assert {name: reader.group for name, reader in DIALECTS.items()} == {"wakeful": "wakeful.dev", "seldon": "mlops.seldon.io"}
