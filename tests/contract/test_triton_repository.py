"""The unmodified `tritonclient.http` against a repository as Triton has it, with a `config.pbtxt`; and what the daemon says of that."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

import wakeful
from tests import onnx_models
from tests.crowd import Crowd
from tests.daemon import Daemon, running, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "triton_repository"
DIGITS = Path(wakeful.__file__).parent / "demo" / "digits.onnx"
TIMES = """
name: "times"
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 5 ] }, { name: "z" data_type: TYPE_FP32 dims: [ 1 ] } ]
version_policy { all { } }
sequence_batching { }
"""


def put(repository: Path, model: str, version: int) -> None:
    home = repository / model / str(version)
    home.mkdir(parents=True)
    onnx_models.times(home / "draft", version)
    (home / "draft").rename(home / "model.onnx")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("triton") / "repository"
    shutil.copytree(EXAMPLE, repository)
    (repository / "digits" / "1").mkdir()
    shutil.copy(DIGITS, repository / "digits" / "1" / "model.onnx")
    for version in (1, 2):
        put(repository, "times", version)
    (repository / "times" / "config.pbtxt").write_text(TIMES)
    (repository / "broken").mkdir()
    (repository / "broken" / "config.pbtxt").write_text("max_batch_size")
    return repository


@pytest.fixture(scope="module")
def daemon(repository: Path) -> Iterator[Daemon]:
    with running(repository.parent / "daemon", "--models-dir", str(repository)) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"{daemon.host}:{daemon.port}") as client:
        yield client


def ask(client: triton.InferenceServerClient, model: str, version: str = "") -> tuple[str, float]:
    """Which version answers, and what it makes of 1."""
    x = triton.InferInput("x", [1, 4], "FP32").set_data_from_numpy(np.ones((1, 4), np.float32))
    result = client.infer(model, [x], model_version=version)
    return result.get_response()["model_version"], float(result.as_numpy("y")[0, 0])


def index(client: triton.InferenceServerClient, model: str) -> dict[str, str]:
    return {row["version"]: row["state"] for row in client.get_model_repository_index() if row["name"] == model}


def test_the_example(daemon: Daemon, client: triton.InferenceServerClient) -> None:
    client.load_model("digits")
    image = triton.InferInput("image", [1, 64], "FP32").set_data_from_numpy(np.zeros((1, 64), np.float32))
    assert client.infer("digits", [image]).as_numpy("probabilities").shape == (1, 10)
    config = client.get_model_config("digits")
    assert config["max_batch_size"] == 32
    assert [tensor["dims"] for tensor in config["output"]] == [[], [10]]
    assert "not honoured: nothing" in daemon.wait_event("config", "digits", text="config.pbtxt: honoured")["text"]
    assert not [event for event in daemon.events(model="digits") if event["figures"].get("code") == "declared"]


def test_versions(client: triton.InferenceServerClient) -> None:
    assert ask(client, "times") == ("2", 2)
    assert ask(client, "times", "1") == ("1", 1)
    with pytest.raises(InferenceServerException, match="no version '9', only 1, 2") as caught:
        ask(client, "times", "9")
    assert caught.value.status() == "404"
    assert client.get_model_metadata("times")["versions"] == ["1", "2"]
    assert client.get_model_metadata("times", "1")["versions"] == ["1", "2"]
    rows = client.get_inference_statistics("times")["model_stats"]
    assert [row["version"] for row in rows] == ["1", "2"]
    (row,) = client.get_inference_statistics("times", "1")["model_stats"]
    assert row["inference_count"] == 1


def test_versions_over_grpc(daemon: Daemon) -> None:
    with triton_grpc.InferenceServerClient(daemon.grpc) as client:
        x = triton_grpc.InferInput("x", [1, 4], "FP32").set_data_from_numpy(np.ones((1, 4), np.float32))
        for version, named in (("", "2"), ("1", "1"), ("2", "2")):
            result = client.infer("times", [x], model_version=version)
            assert (result.get_response().model_version, result.as_numpy("y")[0, 0]) == (named, float(named))
        assert list(client.get_model_metadata("times", "1").versions) == ["1", "2"]
        assert client.is_model_ready("times", "1")
        assert {row.version for row in client.get_model_repository_index().models if row.name == "times"} == {"1", "2"}
        with pytest.raises(InferenceServerException, match="no version '9'") as caught:
            client.infer("times", [x], model_version="9")
        assert caught.value.status() == "StatusCode.NOT_FOUND"


def test_load_and_unload(client: triton.InferenceServerClient) -> None:
    client.unload_model("times")
    assert index(client, "times") == {"1": "UNAVAILABLE", "2": "UNAVAILABLE"}
    assert not client.is_model_ready("times")
    assert not client.is_model_ready("times", "1")
    client.load_model("times")
    assert index(client, "times") == {"1": "READY", "2": "READY"}
    assert client.is_model_ready("times")
    assert client.is_model_ready("times", "1")
    assert not client.is_model_ready("times", "9")
    assert client.get_model_config("times", "1")["max_batch_size"] == 8


def test_what_was_honoured_is_told(daemon: Daemon) -> None:
    text = daemon.wait_event("config", "times", text="config.pbtxt")["text"]
    assert "max_batch_size: 8" in text
    assert "version_policy.all" in text
    assert "sequence_batching (requests have no state here" in text
    assert "broken is passed over: expected" in daemon.wait_event("config", text="broken")["text"]
    assert "config.pbtxt:1:15" in daemon.log


def test_where_the_file_is_otherwise_is_told(daemon: Daemon, client: triton.InferenceServerClient) -> None:
    client.load_model("times")
    texts = {event["text"] for event in daemon.events(model="times") if event["figures"].get("code") == "declared"}
    assert texts == {
        "config.pbtxt says that output y is FP32 [?,5], the file FP32 [N,4]; the file counts",
        "config.pbtxt names an output 'z', the file has y; the file counts",
    }


def test_a_load_brings_new_versions_and_another_configuration(daemon: Daemon, client: triton.InferenceServerClient, repository: Path) -> None:
    """Nobody who asks meanwhile notices."""
    put(repository, "fresh", 1)
    client.load_model("fresh")
    with Crowd(daemon, "fresh", clients=8, factor=float) as crowd:
        wait_until(lambda: crowd.versions["1"] > 30, "the first version answers")
        put(repository, "fresh", 2)
        client.load_model("fresh")
        wait_until(lambda: crowd.versions["2"] > 30, "the second version answers")
        (repository / "fresh" / "config.pbtxt").write_text("version_policy { specific { versions: [ 1 ] } } max_batch_size: 2")
        client.load_model("fresh")
        before = crowd.versions["1"]
        wait_until(lambda: crowd.versions["1"] > before + 30, "the first version answers again")
        (repository / "fresh" / "config.pbtxt").write_text("max_batch_size: nonsense {")
        client.load_model("fresh")
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors
    assert index(client, "fresh") == {"1": "READY"}
    assert client.get_model_config("fresh")["max_batch_size"] == 2


def test_check_tells_the_same(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from wakeful.cli.main import main

    assert main(["check", "--models-dir", str(repository)], 0.0) == 0
    said: Any = capsys.readouterr().out
    assert f"times, by {repository}/times/config.pbtxt:" in said
    assert "  honoured: max_batch_size: 8\n" in said
    assert "  not honoured: sequence_batching (requests have no state here" in said
