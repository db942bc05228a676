"""What other servers are told of a model counts here wherever it has a meaning, and each field is accounted for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wakeful.config.kinds import KINDS
from wakeful.config.layouts import LARGEST_CONFIG
from wakeful.config.load import Options, load
from wakeful.config.problems import ConfigError
from wakeful.config.settings import DeclaredTensor, ForeignSettings, ModelSettings, Settings, WarmupSettings

Reading = Callable[[ModelSettings], object]


def triton(directory: Path, text: str, *files: str) -> Settings:
    for name in files or ("m/1/model.onnx",):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()
    (directory / "m" / "config.pbtxt").write_text(text)
    return load(Options(models_dir=directory), {})


def mlserver(directory: Path, values: Any, *files: str) -> Settings:
    for name in files or ("m/model.onnx",):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()
    (directory / "m" / "model-settings.json").write_text(values if isinstance(values, str) else json.dumps(values))
    return load(Options(models_dir=directory), {})


def only(settings: Settings) -> tuple[ModelSettings, ForeignSettings]:
    (model,) = settings.models
    assert model.foreign is not None
    return model, model.foreign


# ── Triton ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "reading", "value", "account"),
    [
        ("max_batch_size: 8", lambda model: model.batching.max_rows, 8, "max_batch_size: 8"),
        ("max_batch_size: 0", lambda model: model.batching.merge, "off", "max_batch_size: 0 (requests are not merged)"),
        ("dynamic_batching { max_queue_delay_microseconds: 2500 }", lambda model: model.batching.max_delay, 0.0025,
         "max_queue_delay_microseconds: 2500"),
        ("dynamic_batching { default_queue_policy { max_queue_size: 9 } }", lambda model: model.admission.queue_limit, 9, "max_queue_size: 9"),
        ("instance_group { count: 3 }", lambda model: (model.replicas.max_replicas, model.runtime.device), (3, "auto"), "instance_group.count: 3"),
        ("instance_group [ { count: 2 }, { count: 1 } ]", lambda model: model.replicas.max_replicas, 3, "instance_group.count: 3"),
        ("instance_group [ { kind: KIND_CPU } ]", lambda model: model.runtime.device, "cpu", "instance_group.kind (cpu)"),
        ("instance_group [ { kind: KIND_GPU } ]", lambda model: model.runtime.device, "cuda", "instance_group.kind (cuda)"),
        ("instance_group [ { count: 1 gpus: [ 2 ] } ]", lambda model: model.runtime.device, "cuda:2", "instance_group.kind (cuda:2)"),
        ("version_policy { latest { num_versions: 2 } }", lambda model: model.versions, 2, "version_policy.latest: 2"),
        ("version_policy { latest { } }", lambda model: model.versions, 1, "version_policy.latest: 1"),
        ("version_policy { all { } }", lambda model: model.versions, "all", "version_policy.all"),
        ("version_policy { specific { versions: [ 1, 1 ] } }", lambda model: model.versions, (1,), "version_policy.specific: 1, 1"),
        ("parameters { key: 'intra_op_thread_count' value { string_value: '2' } }", lambda model: model.runtime.threads, 2,
         "intra_op_thread_count: 2"),
        ("model_warmup { name: 'w' inputs { key: 'x' value { data_type: TYPE_FP32 dims: [ 1, 4 ] zero_data: true } } }",
         lambda model: model.warmup, (WarmupSettings(shapes={"x": (1, 4)}),), "model_warmup: 1 request"),
        ("max_batch_size: 64 model_warmup { batch_size: 8 count: 3 inputs { key: 'x' value { dims: 4 random_data: true } } }",
         lambda model: model.warmup, (WarmupSettings("random", 8, shapes={"x": (8, 4)}, count=3),), "model_warmup: 1 request"),
        ("name: 'm'", lambda model: model.id, "m", "name"),
        ("platform: 'onnxruntime_onnx'", lambda model: model.backend, "onnx", "platform: onnxruntime_onnx"),
        ("backend: 'onnxruntime'", lambda model: model.backend, "onnx", "backend: onnxruntime"),
    ],
)
def test_what_counts(tmp_path: Path, text: str, reading: Reading, value: object, account: str) -> None:
    model, foreign = only(triton(tmp_path, text))
    assert reading(model) == value
    assert any(field.startswith(account) for field in foreign.honoured), foreign
    assert foreign.ignored == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: 'other'", ["name: other", "called m"]),
        ("platform: 'tensorrt_plan'", ["platform: tensorrt_plan", "the file is one of onnx"]),
        ("dynamic_batching { preferred_batch_size: [ 4 ] }", ["dynamic_batching.preferred_batch_size", "learnt"]),
        ("dynamic_batching { priority_levels: 3 }", ["dynamic_batching.priority_levels", "no priorities"]),
        ("sequence_batching { }", ["sequence_batching", "no state"]),
        ("model_warmup { name: 'w' inputs { key: 'x' value { dims: 4 input_data_file: 'raw' } } }", ["model_warmup w", "raw has no shape"]),
        ("model_warmup { name: 'w' frob: 1 }", ["model_warmup.frob"]),
        ("optimization { }", ["optimization"]),
        ("response_cache { enable: true }", ["response_cache", "not kept"]),
        ("parameters { key: 'other' value { string_value: '2' } }", ["parameters: other"]),
        ("instance_group [ { gpus: [ 0, 1 ] } ]", ["instance_group.gpus: [1]", "one device"]),
        ("instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU } ]", ["all but the first (cuda)"]),
        ("instance_group [ { kind: KIND_MODEL } ]", ["KIND_MODEL"]),
        ("instance_group [ { rate_limiter { } } ]", ["instance_group.rate_limiter"]),
        ("input { name: 'x' reshape { shape: [ 4 ] } }", ["reshape of x"]),
        ("input { name: 'x' allow_ragged_batch: true }", ["input.allow_ragged_batch", "pad"]),
        ("frobnicate: 1", ["frobnicate", "not known"]),
        ("max_batch_size: 'many'", ["max_batch_size", "expected a whole number, got 'many'"]),
        ("max_batch_size: 99999999", ["max_batch_size: 99999999", "1e+06 or less"]),
        ("dynamic_batching: 3", ["dynamic_batching", "expected a message, got 3"]),
        ("default_model_filename: '../x.onnx'", ["default_model_filename"]),
    ],
)
def test_what_does_not_count_is_told(tmp_path: Path, text: str, words: list[str]) -> None:
    model, foreign = only(triton(tmp_path, text))
    assert model.batching.max_rows == 64
    assert all(any(word in field for field in foreign.ignored) for word in words), foreign


def test_declared_tensors(tmp_path: Path) -> None:
    text = "input [ { name: 'x' data_type: TYPE_FP32 dims: [ -1, 4 ] } ] output [ { name: 'y' data_type: TYPE_STRING dims: [ 2 ] } ]"
    _, alone = only(triton(tmp_path, text))
    assert alone.inputs == (DeclaredTensor("x", "FP32", (None, 4)),)
    assert alone.outputs == (DeclaredTensor("y", "BYTES", (2,)),)
    _, batched = only(triton(tmp_path, text + "max_batch_size: 3"))
    assert batched.inputs[0].shape == (None, None, 4)


def test_the_file_that_it_names(tmp_path: Path) -> None:
    files = ("m/1/model.onnx", "m/1/other.onnx")
    model, foreign = only(triton(tmp_path, "default_model_filename: 'other.onnx'", *files))
    assert model.path == tmp_path / "m/1/other.onnx"
    assert foreign.honoured == ("default_model_filename: other.onnx",)


@pytest.mark.skipif("xgboost" not in KINDS, reason="no backend for XGBoost yet")
def test_forests(tmp_path: Path) -> None:
    text = "backend: 'fil' parameters [ { key: 'model_type' value { string_value: 'xgboost_json' } } ]"
    model, foreign = only(triton(tmp_path, text, "m/1/xgboost.json"))
    assert (model.backend, model.path.name) == ("xgboost", "xgboost.json")
    assert foreign.honoured == ("backend: fil", "model_type: xgboost_json")


def test_a_broken_one_is_told_and_its_model_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "good.onnx").touch()
    settings = triton(tmp_path, "max_batch_size 8")
    assert [model.id for model in settings.models] == ["good"]
    (problem,) = settings.warnings
    assert (problem.line, problem.column) == (1, 16)
    assert "m is passed over" in problem.message
    (tmp_path / "c.toml").write_text('[[models]]\nid = "a"\npath = "m"\n')
    with pytest.raises(ConfigError, match=r"config.pbtxt:1:16: .*m is passed over"):
        load(Options(config=tmp_path / "c.toml"), {})


def test_one_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (problem,) = triton(tmp_path, "# " + "x" * LARGEST_CONFIG).warnings
    assert f"config.pbtxt has more than {LARGEST_CONFIG} bytes" in problem.message


def test_numbers_that_nothing_holds_do_not_count(tmp_path: Path) -> None:
    _, foreign = only(triton(tmp_path, f"max_batch_size: {2**64} max_batch_size: {10**99}"))
    assert foreign.ignored == (f"max_batch_size (expected a whole number of 64 bits, got {10**99})",)
    _, foreign = only(mlserver(tmp_path, f'{{"name": "a", "max_batch_time": {10**400}}}'))
    assert "max_batch_time (expected a number of 64 bits, got 1000" in foreign.ignored[0]


@pytest.mark.parametrize("file", ["model.onnx", "model.ubj", "wakeful_model.py"])
def test_it_counts_for_every_kind_of_model(tmp_path: Path, file: str) -> None:
    model, _ = only(triton(tmp_path, "max_batch_size: 8", f"m/1/{file}"))
    assert model.batching.max_rows == 8


def test_a_model_of_another_kind_is_told(tmp_path: Path) -> None:
    settings = triton(tmp_path, "platform: 'tensorrt_plan'", "m/1/model.plan")
    assert settings.models == ()
    assert "has no file of onnx" in settings.warnings[0].message
    assert "asks for tensorrt_plan" in settings.warnings[0].message


def test_an_ensemble_is_told_to_be_a_pipeline(tmp_path: Path) -> None:
    text = 'platform: "ensemble" ensemble_scheduling { step [ { model_name: "a" model_version: -1 } ] }'
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(text)
    settings = load(Options(models_dir=tmp_path), {})
    assert not settings.models
    assert settings.warnings[0].message.endswith("it is an ensemble, which is a table [[pipelines]] here, with the same names")


def test_a_models_own_keys_go_before(tmp_path: Path) -> None:
    triton(tmp_path, "max_batch_size: 8 instance_group { count: 2 }")
    (tmp_path / "models.toml").write_text('[defaults]\nmax_batch_size = 5\n[[models]]\nid = "a"\npath = "m"\nmax_batch_size = 9\n')
    model, foreign = only(load(Options(models_dir=tmp_path), {}))
    assert (model.batching.max_rows, model.replicas.max_replicas) == (9, 2)
    assert foreign.ignored == ("max_batch_size: 8 ([[models]] says otherwise)",)
    assert foreign.honoured == ("instance_group.count: 2 (replicas at most; they come by load)",)


def test_it_goes_before_defaults(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text("[defaults]\nmax_batch_size = 5\nreplicas = 4\nqueue_limit = 77\npad = { axis = 1 }\n")
    model, _ = only(triton(tmp_path, "max_batch_size: 8 instance_group { count: 2 }"))
    assert (model.batching.max_rows, model.replicas.max_replicas, model.replicas.fixed, model.admission.queue_limit) == (8, 2, None, 77)
    assert model.batching.pad is not None


# ── MLServer ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_mlservers_settings(tmp_path: Path) -> None:
    model, foreign = only(mlserver(tmp_path, {
        "name": "iris", "implementation": "own.Runtime", "parameters": {"uri": "./net.onnx", "version": "v1.2", "content_type": "np"},
        "max_batch_size": 5, "max_batch_time": 0.02, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}], "parallel_workers": 2,
    }, "m/net.onnx"))
    assert (model.id, model.version, model.key, model.path) == ("iris", "v1.2", "iris:v1.2", tmp_path / "m/net.onnx")
    assert (model.batching.max_rows, model.batching.max_delay) == (5, 0.02)
    assert foreign.inputs == (DeclaredTensor("x", "FP32", (None, 4)),)
    assert foreign.honoured == (
        "name: iris", "parameters.uri", "parameters.version: v1.2", "max_batch_size: 5", "max_batch_time: 0.02",
        "inputs and outputs (the file is held against them)",
    )
    assert [field.partition(" (")[0] for field in foreign.ignored] == ["implementation: own.Runtime", "parameters.content_type", "parallel_workers"]


def test_the_models_directory_may_be_its_only_model(tmp_path: Path) -> None:
    mlserver(tmp_path, {"name": "iris"})
    model, _ = only(load(Options(models_dir=tmp_path / "m"), {}))
    assert (model.id, model.home) == ("iris", tmp_path / "m")
    (tmp_path / "m" / "other.onnx").touch()
    assert [model.id for model in load(Options(models_dir=tmp_path / "m"), {}).models] == ["iris", "other"]


def test_few_words_suffice(tmp_path: Path) -> None:
    model, _ = only(mlserver(tmp_path, {"name": "iris", "max_batch_size": 0}))
    assert (model.id, model.version, model.batching.merge) == ("iris", None, "off")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "a", "implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "model.joblib"}}, "pickles"),
        ({"name": "a", "implementation": "mlserver_mlflow.MLflowRuntime"}, "mlserver_mlflow.MLflowRuntime is not served here"),
        ({"name": "a", "parameters": {"uri": "s3://bucket/model.onnx"}}, "is elsewhere"),
        ({"implementation": "x"}, "has no name"),
        ([], "has no name"),
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ('{"name": "a", "x": ' + 700 * '{"x": ' + "1" + 701 * "}", "nested too deep"),
        (" " * LARGEST_CONFIG + "{}", f"has more than {LARGEST_CONFIG} bytes"),
    ],
)
def test_what_cannot_be_served(tmp_path: Path, values: Any, words: str) -> None:
    (tmp_path / "good.onnx").touch()
    settings = mlserver(tmp_path, values, "m/model.onnx")
    assert [model.id for model in settings.models] == ["good"]
    (problem,) = settings.warnings
    assert words in problem.message
    assert "m is passed over" in problem.message


@pytest.mark.skipif("xgboost" not in KINDS, reason="no backend for XGBoost yet")
@pytest.mark.parametrize(
    ("implementation", "file", "backend"),
    [
        ("mlserver_xgboost.XGBoostModel", "model.json", "xgboost"), ("mlserver_lightgbm.LightGBMModel", "model.bst", "lightgbm"),
        ("mlserver_catboost.CatboostModel", "model.cbm", "catboost"),
    ],
)
def test_its_runtimes_for_trees(tmp_path: Path, implementation: str, file: str, backend: str) -> None:
    model, foreign = only(mlserver(tmp_path, {"name": "a", "implementation": implementation}, f"m/{file}"))
    assert (model.backend, model.path.name) == (backend, file)
    assert f"implementation: {implementation}" in foreign.honoured
