"""The models: made once, of the stated size, and rows do not depend on each other."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from bench import models
from wakeful.tensors import DTYPES


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One directory for all tests: the encoder has 90 MB."""
    patch = pytest.MonkeyPatch()
    patch.setenv("WAKEFUL_BENCH_CACHE", str(tmp_path_factory.mktemp("bench")))


@pytest.mark.parametrize("name", models.MODELS)
def test_a_model_answers_each_row_as_alone(name: str) -> None:
    model = models.MODELS[name]()
    onnx.checker.check_model(str(model.path))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])
    feeds = model.feeds(2, seed=3)
    together = session.run(None, feeds)[0]
    for row in range(2):
        alone = session.run(None, {key: array[row : row + 1] for key, array in feeds.items()})[0]
        np.testing.assert_allclose(together[row : row + 1], alone, rtol=1e-3, atol=1e-5)
    assert np.isfinite(together).all()
    assert not np.allclose(together[0], together[1])
    assert [value.name for value in session.get_inputs()] == list(feeds)


@pytest.mark.parametrize("name", models.MODELS)
def test_inputs_are_the_feeds_and_follow_the_seed(name: str) -> None:
    model = models.MODELS[name]()
    tensors = model.inputs(3, seed=1)
    for tensor, array in zip(tensors, model.feeds(3, seed=1).values(), strict=True):
        assert tensor.shape == array.shape
        assert tensor.shape[0] == 3
        np.testing.assert_array_equal(np.frombuffer(tensor.data, DTYPES[tensor.datatype].numpy).reshape(tensor.shape), array)
    assert tensors != model.inputs(3, seed=2)


def test_sizes_are_those_of_the_issue() -> None:
    assert 85e6 < models.encoder().path.stat().st_size < 95e6
    assert models.identity().feeds()["x"].nbytes == 600_000
    assert models.encoder().feeds(2)["input_ids"].shape == (2, 16)


def test_a_model_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WAKEFUL_BENCH_CACHE", str(tmp_path))
    path = models.tiny().path
    made = path.stat().st_mtime_ns
    assert models.tiny().path == path
    assert path.stat().st_mtime_ns == made
    assert [file.name for file in path.parent.iterdir()] == ["tiny.onnx"]
