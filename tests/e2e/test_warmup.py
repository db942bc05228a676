"""Warm-up requests are run before a replica is ready, and are nobody's."""

import json
from collections.abc import Iterator

import numpy as np
import pytest

from tests import onnx_models
from tests.daemon import Daemon, running

WARMUPS = {
    "zeros": "rows = 3",
    "random": 'data = "random"\nrows = 8\ncount = 5',
    "file": 'file = "right.npz"',
    "json": 'file = "right.json"',
    "sized": "sizes = { L = 4 }",
    "wrong": 'file = "wrong.npz"',
    "crash": 'file = "crash.json"',
    "missing": 'file = "nowhere.json"',
    "unsized": "rows = 1",
}
MODELS = {"sized": onnx_models.identdyn, "unsized": onnx_models.identdyn, "crash": onnx_models.fatal}
"""The others are `gather10`: an index that is not in its table fails."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("warmup")
    np.savez(directory / "right.npz", i=np.array([7, 8]))
    np.savez(directory / "wrong.npz", i=np.array([7, 99]))
    tensors = {"right": ("i", "INT64", [1], [7]), "crash": ("x", "FP32", [1, 4], [onnx_models.FATAL, 0, 0, 0])}
    for name, (tensor, datatype, shape, data) in tensors.items():
        inputs = [{"name": tensor, "datatype": datatype, "shape": shape, "data": data}]
        (directory / f"{name}.json").write_text(json.dumps({"inputs": inputs}))
    tables = ""
    for name, warmup in WARMUPS.items():
        MODELS.get(name, onnx_models.gather10)(directory / f"{name}.onnx")
        tables += f'[[models]]\nid = "{name}"\npath = "{name}.onnx"\nmax_batch_size = 2\nreplicas = 2\n[[models.warmup]]\n{warmup}\n'
    (directory / "models.toml").write_text(tables)
    with running(directory / "daemon", "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


@pytest.mark.parametrize("model", ["zeros", "random", "file", "json"])
def test_a_model_that_was_warmed_up_has_seen_no_request(daemon: Daemon, model: str) -> None:
    assert daemon.call("POST", f"/v2/repository/models/{model}/load")[0] == 200
    for name in ("wakeful_batch_rows_count", "wakeful_run_seconds_count", "wakeful_queue_seconds_count"):
        assert daemon.metric(name, model=model) == 0
    assert daemon.infer(model, "i", [3, 4], [2], "INT64")[1]["outputs"][0]["data"] == [30, 40]
    assert daemon.metric("wakeful_batch_rows_count", model=model) == 1


def test_dimensions_get_the_sizes_that_are_given(daemon: Daemon) -> None:
    assert daemon.infer("sized", "x", [1, 2, 3], [1, 3])[0] == 200


@pytest.mark.parametrize(("model", "words"), [
    ("wrong", "warm-up request 1 (wrong.npz) failed: "),
    ("missing", "warm-up request 1 (nowhere.json) failed: "),
    ("unsized", "warm-up request 1 (zeros, rows = 1) failed: input x leaves its axis 1 free: say sizes = { L = ... }"),
    ("crash", "the model's process could not be started: "),
])
def test_one_that_fails_is_a_load_that_has_failed(daemon: Daemon, model: str, words: str) -> None:
    status, answer = daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])
    assert (status, words in answer["error"]) == (503, True), answer
    assert daemon.wait_event("refuse", model, text="load failed")
    assert daemon.call("GET", f"/v2/models/{model}/ready")[0] == 503
    assert not any(event["kind"] == "load" for event in daemon.events(model=model))
