"""The models that the package ships."""

from pathlib import Path

import numpy as np
import pytest

import wakeful
from tools import make_demo_models
from wakeful.backends.base import LoadOptions
from wakeful.backends.onnx import open_model
from wakeful.runtime.messages import TensorSpec
from wakeful.worker import selftest

DEMO = Path(wakeful.__file__).parent / "demo"


def test_digits_knows_the_digits_it_has_not_seen() -> None:
    model = open_model(str(DEMO / "digits.onnx"), LoadOptions())
    assert model.signature.inputs == (TensorSpec("image", "FP32", ("N", 64)),)
    assert model.signature.outputs == (TensorSpec("label", "INT64", ("N",)), TensorSpec("probabilities", "FP32", ("N", 10)))
    _, images, _, digits = make_demo_models.split_digits()
    label, probabilities = model.run({"image": images})
    assert np.mean(label == digits) > 0.95
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


def test_demo_model_takes_four_numbers() -> None:
    model = open_model(str(DEMO / "demo-model.onnx"), LoadOptions())
    assert model.signature.inputs == (TensorSpec("input", "FP32", ("N", 4)),)
    assert model.run({"input": np.ones((2, 4), np.float32)})[0].shape == (2, 3)


@pytest.mark.parametrize("name", ["digits", "demo-model"])
def test_demo_models_are_small_and_their_requests_merge(name: str) -> None:
    assert (DEMO / f"{name}.onnx").stat().st_size < 30_000
    verdict = selftest.probe(open_model(str(DEMO / f"{name}.onnx"), LoadOptions()))
    assert verdict.mergeable, verdict.reason


def test_the_script_makes_models_that_agree_with_the_shipped_ones(tmp_path: Path) -> None:
    make_demo_models.main(tmp_path)
    x = np.ones((1, 4), np.float32)
    shipped, made = (open_model(str(directory / "demo-model.onnx"), LoadOptions()).run({"input": x})[0] for directory in (DEMO, tmp_path))
    np.testing.assert_array_equal(shipped, made)
    assert (tmp_path / "digits.onnx").exists()
