"""The golden rule's two questions: what does the model declare, and what does it do?"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from tests import onnx_models
from wakeful.backends.base import LoadOptions, Plain
from wakeful.backends.onnx import OnnxBackend, open_model
from wakeful.errors import OutOfMemory
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.tensors import DTYPES
from wakeful.worker import selftest


def opened(path: Path) -> OnnxBackend:
    return open_model(str(path), LoadOptions())


def signature(*inputs: tuple[int | str | None, ...], output: tuple[int | str | None, ...] = ("N", 2)) -> Signature:
    specs = tuple(TensorSpec(f"in{index}", "FP32", shape) for index, shape in enumerate(inputs))
    return Signature(specs, (TensorSpec("out", "FP32", output),))


# ── declared ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "mergeable",
    [
        signature(("N", 4)),
        signature((None, 4), output=(None,)),
        signature((None, 4), ("N",), output=("N", 2)),
        signature(("unk__214", 2048), output=("unk__215", 214)),  # tf2onnx names what has no name
        signature(("batch", 4), output=("Softmaxoutput_dim_0", 2)),  # so does torch
    ],
)
def test_a_shared_free_axis_is_mergeable(mergeable: Signature) -> None:
    verdict = selftest.declared(mergeable)
    assert verdict.mergeable
    assert not verdict.tested


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (signature((1, 4)), "input in0 has axis 0 fixed to 1"),
        (signature(("N", 4), output=(2,)), r"output out has no free axis 0 \(\[2\]\)"),
        (signature(("N", 4), output=()), "output out has no declared axis 0"),
        (signature(("N", 4), ()), "input in1 has no declared axis 0"),
        (signature(("N", 4), output=("K", 1)), "axis 0 of output out is K, of input in0 it is N"),
        (signature(("N", 4), ("M", 4)), "axis 0 of input in1 is M, of input in0 it is N"),
        (signature(("N", 4), output=("N", "N")), r"output out depends on the batch size in a further axis \(\[N, N\]\)"),
        (signature(output=("N",)), "no inputs"),
    ],
)
def test_everything_else_is_not_and_the_reason_names_the_tensor(refused: Signature, reason: str) -> None:
    verdict = selftest.declared(refused)
    assert not verdict.mergeable
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(verdict.reason)


def test_optional_inputs_do_not_count() -> None:
    both = Signature((TensorSpec("x", "FP32", ("N", 2)), TensorSpec("scale", "FP32", (1,), optional=True)), (TensorSpec("y", "FP32", ("N", 2)),))
    assert selftest.declared(both).mergeable


# ── probe ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "make",
    [
        onnx_models.ident, onnx_models.identdyn, onnx_models.gather10, onnx_models.strid, onnx_models.log, onnx_models.two_inputs,
        onnx_models.optional_input, onnx_models.all_types, onnx_models.encoder, lambda path: onnx_models.heavy(path, 4),
        lambda path: onnx_models.slow(path, 50),
    ],
)
def test_independent_rows_may_be_merged(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    verdict = selftest.probe(opened(make(tmp_path / "m.onnx")))
    assert verdict.mergeable, verdict.reason
    assert verdict.tested


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_can_be_tested(tmp_path: Path, datatype: str) -> None:
    verdict = selftest.probe(opened(onnx_models.typed(tmp_path / "m.onnx", datatype)))
    assert verdict.mergeable, verdict.reason


@pytest.mark.parametrize("make", [onnx_models.centred, onnx_models.sorting, onnx_models.dynamic_quantised, onnx_models.disguised_nonzero])
def test_rows_that_influence_each_other_are_found_out(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    verdict = selftest.probe(opened(make(tmp_path / "m.onnx")))
    assert not verdict.mergeable
    assert verdict.tested
    assert "output y" in verdict.reason
    assert 'batching = "on"' in verdict.reason


@pytest.mark.parametrize("make", [onnx_models.constout, onnx_models.nonzero, onnx_models.mean0, onnx_models.fixed1, onnx_models.scalar])
def test_what_the_declaration_excludes_is_not_run(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    verdict = selftest.probe(opened(make(tmp_path / "m.onnx")))
    assert not verdict.mergeable
    assert not verdict.tested


GRAPHS = {
    "faint": (
        ("m (float[N,4] x) => (float[N,4] y) <float part = {0.00001}>"
        " { mean = ReduceMean<axes = [0]>(x) share = Mul(mean, part) factor = Exp(share) y = Mul(x, factor) }"),
        "depends on the rows beside it",
    ),
    "numbered": (
        ("m (float[N,4] x) => (float[N,4] y) <int64[1] first = {0}, float no = {0.0}>"
        " { zeros = Mul(x, no) ones = Exp(zeros) places = CumSum(ones, first) y = Mul(x, places) }"),
        "is not the same in company as alone",
    ),
    "swelling": (
        ("m (float[N,4] x) => (float[N,4] y) <float thousand = {1000.0}>"
        " { rows = Shape<start = 0, end = 1>(x) count = Cast<to = 1>(rows) factor = Add(count, thousand) y = Mul(x, factor) }"),
        "depends on its place, or on how many there are",
    ),
    "crowded": (
        ("m (float[N,4] x) => (float[N,4] y) <int64[1] most = {7}>"
        " { rows = Shape<start = 0, end = 1>(x) many = Greater(rows, most) less = Neg(x) y = Where(many, less, x) }"),
        "depends on its place, or on how many there are",
    ),
    "short": (
        ("m (float[N,4] x) => (float[N,4] y) <int64[1] first = {0}, int64[1] most = {7}> { y = Slice(x, first, most, first) }"),
        r"output y has shape \[7, 4\] for \d+ rows",
    ),
    "elements": ("m (float[?,4] x) => (int64[?,2] y) { at = NonZero(x) y = Transpose<perm = [1, 0]>(at) }", r"output y has shape \[4, 2\] for 1 row"),
    "chance": ("m (float[N,4] x) => (float[N,4] y) { noise = RandomUniformLike(x) y = Add(x, noise) }", "differs from run to run even alone"),
    "unmergeable": (
        ("m (float[N,4] x) => (float[N,4] y) <float[4] table = {0.0, 0.0, 0.0, 0.0}>"
        " { rows = Shape<start = 0, end = 1>(x) zero = Gather(table, rows) y = Add(x, zero) }"),
        "a merged run fails",
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_more_ways_to_break_the_rule(tmp_path: Path, name: str) -> None:
    graph, reason = GRAPHS[name]
    verdict = selftest.probe(opened(onnx_models.write(tmp_path / "m.onnx", graph, check=False)))
    assert not verdict.mergeable
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(verdict.reason)


def test_images_are_guessed(tmp_path: Path) -> None:
    """Free height and width that a stride and a kernel make too small at first; three channels."""
    weights = numpy_helper.from_array(np.ones((2, 3, 16, 16), np.float32), "w")
    graph = "m (float[N,C,H,W] x) => (float[N,2,P,Q] y) { y = Conv<strides = [4, 4]>(x, w) }"
    verdict = selftest.probe(opened(onnx_models.write(tmp_path / "m.onnx", graph, [weights])))
    assert verdict.mergeable, verdict.reason


def test_a_model_that_takes_no_made_up_input_is_not_merged_and_says_what_to_do(tmp_path: Path) -> None:
    graph = "m (float[N,L] x) => (float[N,1777] y) <int64[2] s = {-1, 1777}> { y = Reshape(x, s) }"
    verdict = selftest.probe(opened(onnx_models.write(tmp_path / "m.onnx", graph)))
    assert not verdict.mergeable
    assert "no input that the model takes" in verdict.reason
    assert 'batching = "on"' in verdict.reason


class Starved(Plain):
    """A backend whose memory is at its end."""

    signature = signature(("N", 4))

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        raise OutOfMemory("no room")


def test_running_out_of_memory_is_no_verdict() -> None:
    with pytest.raises(OutOfMemory):
        selftest.probe(Starved())


class Frugal(Plain):
    """x FP32 [N,4] -> twice that, made in the place of its input and given in a buffer that the next run of as many rows fills anew."""

    signature = Signature((TensorSpec("x", "FP32", ("N", 4)),), (TensorSpec("y", "FP32", ("N", 4)),))

    def __init__(self, *, leaks: bool) -> None:
        self._buffers: dict[int, np.ndarray] = {}
        self._leaks = leaks

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        rows = inputs["x"]
        rows *= 2
        buffer = self._buffers.setdefault(len(rows), np.empty_like(rows))
        buffer[:] = rows + (1e-4 * rows.max() if self._leaks else 0)
        return [buffer]


@pytest.mark.parametrize("leaks", [False, True])
def test_what_a_model_does_to_its_arrays_deceives_nobody(leaks: bool) -> None:
    assert selftest.probe(Frugal(leaks=leaks)).mergeable != leaks
