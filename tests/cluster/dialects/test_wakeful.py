"""Manifests of our own group, as the planner thinks of them."""

from pathlib import Path
from typing import Any

import pytest

from wakeful.cluster.dialects.wakeful import model, revision, server
from wakeful.cluster.planning.world import Bounds
from wakeful.config.load import Options, load
from wakeful.config.problems import ConfigError


def a_model(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "fraud", "uid": "u1", "generation": 3}, "spec": {"storageUri": "s3://b/fraud", **spec}}


def a_server(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "triton", "uid": "u2", "generation": 1}, "spec": spec}


def test_the_seeds_model() -> None:
    spec = model(a_model(storageUri="gs://seldon-models/triton/simple", requirements=["tensorflow"], memory="100Ki", minReplicas=1, replicas=1))

    assert (spec.name, spec.uid, spec.generation) == ("fraud", "u1", 3)
    assert spec.storage_uri == "gs://seldon-models/triton/simple"
    assert spec.requirements == {"tensorflow"}
    assert spec.memory == 100 * 1024
    assert spec.bounds == Bounds(1, 1, None)
    assert spec.errors == ()


def test_what_is_not_written_is_not_a_zero() -> None:
    assert model(a_model()).bounds == Bounds(None, None, None)
    assert model(a_model(minReplicas=0)).bounds == Bounds(None, 0, None)
    assert server(a_server()).bounds == Bounds(1, None, None)


@pytest.mark.parametrize("change", [{"storageUri": "s3://b/other"}, {"serving": {"threads": 2}}, {"backend": "onnx"}])
def test_another_revision_for_what_is_loaded(change: dict[str, Any]) -> None:
    assert model(a_model(**change)).revision != model(a_model()).revision


def test_the_same_revision_for_all_else() -> None:
    same = model(a_model(memory="2Gi", replicas=4, minReplicas=1, requirements=["gpu"], pinned=True, autoscaling={"lagThreshold": 3}))

    assert same.revision == model(a_model()).revision
    assert revision({"storageUri": "a", "serving": {"x": 1, "y": 2}}) == revision({"storageUri": "a", "serving": {"y": 2, "x": 1}})


@pytest.mark.parametrize("serving", [
    {"max_batch_size": 0}, {"batch_policy": "adaptve"}, {"replicas": 2, "min_replicas": 1}, {"pad": {"axis": 0}}, {"threads": "many"},
    {"memory_limit": "3 apples"}, {"versions": "newest"}, {"text": {"pooling": "maxx"}},
])
def test_serving_is_judged_in_the_same_words_as_a_file(serving: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "fraud.onnx").write_bytes(b"")
    lines = "\n".join(f"{key} = {_toml(value)}" for key, value in serving.items())
    (tmp_path / "models.toml").write_text(f'[[models]]\nid = "fraud"\npath = "fraud.onnx"\n{lines}\n')
    with pytest.raises(ConfigError) as error:
        load(Options(config=tmp_path / "models.toml"), {"HOME": str(tmp_path)})
    on_one_host = next(problem for problem in error.value.problems if problem.severity == "error")

    (told,) = model(a_model(serving=serving)).errors

    assert told.startswith(f"spec.serving.{on_one_host.key.partition('.')[2]}: {on_one_host.message}")


def test_config_is_judged_in_the_same_words_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text("[server]\nport = 7\ngrpc_port = 7\nmax_body = 0\n[defaults]\nthreads = 5000\n")
    with pytest.raises(ConfigError) as error:
        load(Options(config=tmp_path / "models.toml"), {"HOME": str(tmp_path)})
    on_one_host = {f"spec.config.{problem.key}: {problem.message}" for problem in error.value.problems}

    told = server(a_server(config={"server": {"port": 7, "grpc_port": 7, "max_body": 0}, "defaults": {"threads": 5000}})).errors

    assert set(told) == on_one_host
    assert len(told) == 3


def test_a_key_of_a_caller_may_come_from_a_variable_that_only_the_pod_has() -> None:
    assert server(a_server(config={"auth": {"api_keys": [{"role": "inference", "key_env": "SHOP_KEY"}]}})).errors == ()


def test_what_is_allowed_and_probably_not_meant_is_a_note() -> None:
    spec = model(a_model(serving={"batch_policy": "timer", "target_p99_ms": 50}))

    assert spec.errors == ()
    assert 'target_p99_ms has no effect with batch_policy = "timer"' in spec.notes[0]


def test_an_unknown_backend_is_an_error_of_its_own_field() -> None:
    (told,) = model(a_model(backend="onx")).errors

    assert told.startswith("spec.backend: `backend` must be one of")


def test_a_servers_fields() -> None:
    spec = server(a_server(
        replicas=2, minReplicas=1, maxReplicas=5, capabilities=["gpu"], overcommitPercent=50, terminationGracePeriodSeconds=30, surge=0,
        modelAutoscaling={"lagThreshold": 7, "busyPercent": 50}, podTemplate={"spec": {"nodeSelector": {"a": "b"}}},
    ))

    assert spec.bounds == Bounds(2, 1, 5)
    assert spec.capabilities == frozenset({"gpu"})
    assert (spec.overcommit, spec.grace, spec.surge) == (0.5, 30.0, 0)
    assert spec.model_autoscaling == {"lag_threshold": 7, "busy": 0.5}
    assert spec.pod_template == {"spec": {"nodeSelector": {"a": "b"}}}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    return f'"{value}"' if isinstance(value, str) else str(value)
