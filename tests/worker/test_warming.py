"""What a warm-up request holds, and what is said of one that fails."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wakeful.backends.base import Plain
from wakeful.errors import ExecutionFailed, InvalidInput, OutOfMemory, Unavailable
from wakeful.runtime.messages import Signature, TensorSpec, Warmup
from wakeful.tensors import DTYPES
from wakeful.worker.warming import inputs_of, warm_up

IDS, MASK = TensorSpec("ids", "INT64", ("N", "L")), TensorSpec("mask", "BOOL", ("N", "L"))
IMAGE = TensorSpec("image", "FP32", (None, 3, None, None))
SCALE = TensorSpec("scale", "FP32", (1,), optional=True)
TEXT = TensorSpec("text", "BYTES", ("N",))
SIGNATURE = Signature((IDS, MASK, IMAGE, SCALE, TEXT), ())
SIZES = {"L": 16}
SHAPES: dict[str, tuple[int, ...]] = {"image": (2, 3, 8, 8)}


def shapes(inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in inputs.items()}


class Model(Plain):
    def __init__(self, *specs: TensorSpec, error: Exception | None = None) -> None:
        self.signature = Signature(specs, ())
        self.ran: list[Mapping[str, np.ndarray]] = []
        self.settled = False
        self._error = error

    def settle(self) -> None:
        self.settled = True

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        assert self.settled
        if self._error is not None:
            raise self._error
        self.ran.append(inputs)
        return []


class Doubler(Model):
    """Doubles what it is given in its place."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        super().run({name: array.copy() for name, array in inputs.items()})
        for array in inputs.values():
            array[...] = 2 * array
        return list(inputs.values())


def test_a_model_that_writes_into_its_inputs_gets_the_same_ones_each_time() -> None:
    model = Doubler(IDS)
    warm_up(model, [Warmup("random", rows=2, sizes=SIZES, count=3)])
    first, *others = [run["ids"] for run in model.ran]
    assert first.any()
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize("data", ["zeros", "random"])
def test_shapes_and_types_are_those_of_the_model(data: str) -> None:
    inputs = inputs_of(SIGNATURE, Warmup(data, rows=2, sizes=SIZES, shapes=SHAPES))
    assert shapes(inputs) == {"ids": (2, 16), "mask": (2, 16), "image": (2, 3, 8, 8), "text": (2,)}
    for spec in SIGNATURE.inputs:
        if not spec.optional:
            assert inputs[spec.name].dtype == np.dtype(DTYPES[spec.datatype].numpy)
    assert set(inputs["ids"].ravel()) <= {0, 1}, "small enough for any table"
    assert (data == "zeros") == (not inputs["image"].any())


def test_what_is_optional_comes_only_when_it_is_asked_for() -> None:
    inputs = inputs_of(SIGNATURE, Warmup(sizes=SIZES, shapes={**SHAPES, "scale": (1,)}))
    assert inputs["scale"].shape == (1,)


@pytest.mark.parametrize(("request_", "words"), [
    (Warmup(shapes=SHAPES), r"input ids leaves its axis 1 free: say sizes = \{ L = \.\.\. \}"),
    (Warmup(sizes=SIZES), r"input image leaves its axis 2 free: say shapes = \{ image = \[\.\.\.\] \}"),
    (Warmup(sizes={"M": 3, **SIZES}, shapes=SHAPES), r"sizes: expected names among \['L', 'N'\], got 'M'"),
    (Warmup(sizes=SIZES, shapes={**SHAPES, "x": (1,)}), "shapes: expected names among"),
    (Warmup(sizes=SIZES, shapes={"image": (2, 4, 8, 8)}), r"shape of input image: expected \[\?, 3, \?, \?\], got \[2, 4, 8, 8\]"),
])
def test_what_is_missing_or_wrong_is_named(request_: Warmup, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        inputs_of(SIGNATURE, request_)


def test_they_run_in_order_and_as_often_as_is_said() -> None:
    model = Model(IDS)
    warm_up(model, [Warmup(rows=1, sizes=SIZES), Warmup("random", rows=3, sizes={"L": 4}, count=2)])
    assert [inputs["ids"].shape for inputs in model.ran] == [(1, 16), (3, 4), (3, 4)]
    untouched = Model(IDS)
    warm_up(untouched, [])
    assert not untouched.settled


@pytest.mark.parametrize(("error", "raised"), [
    (ExecutionFailed("no"), Unavailable), (InvalidInput("no"), Unavailable), (OutOfMemory("no"), OutOfMemory),
])
def test_the_one_that_failed_is_named(error: Exception, raised: type[Exception]) -> None:
    with pytest.raises(raised, match=r"^warm-up request 1 \(zeros, rows = 4\) failed: no$"):
        warm_up(Model(TEXT, error=error), [Warmup(rows=4)])


# ── from a file ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def from_json(path: Path, body: Any) -> Warmup:
    path.write_text(json.dumps(body))
    return Warmup(file=str(path))


def tensor(name: str, datatype: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def test_arrays_of_numpy(tmp_path: Path) -> None:
    file = tmp_path / "sample.npz"
    np.savez(file, ids=np.array([[7, 8]]), text=np.array(["ü", "b"]))
    inputs = inputs_of(Signature((IDS, TEXT), ()), Warmup(file=str(file)))
    assert inputs["ids"].tolist() == [[7, 8]]
    assert inputs["text"].tolist() == ["ü", "b"]


@pytest.mark.parametrize("datatype", DTYPES)
def test_json_of_the_protocol(tmp_path: Path, datatype: str) -> None:
    given = ["a", "ü"] if datatype == "BYTES" else [True, False] if datatype == "BOOL" else [1, 2]
    request = from_json(tmp_path / "sample.json", {"inputs": [tensor("x", datatype, [2, 1], given)]})
    array = inputs_of(Signature((TensorSpec("x", datatype, ("N", 1)),), ()), request)["x"]
    assert array.dtype == np.dtype(DTYPES[datatype].numpy)
    assert array.tolist() == ([[0x3F80], [0x4000]] if datatype == "BF16" else [[element] for element in given])


@pytest.mark.parametrize(("body", "words"), [
    ([], "cannot be read"),
    ({"inputs": [{"name": "ids"}]}, "cannot be read"),
    ({"inputs": [tensor("ids", "INT64", [2], [1])]}, "cannot be read"),
    ({"inputs": [tensor("ids", "INT9", [1], [1])]}, "cannot be read"),
    ({"inputs": []}, r"no 'ids'"),
    ({"inputs": [tensor("other", "INT64", [1, 1], [1])]}, "got 'other'"),
    ({"inputs": [tensor("ids", "INT64", [1], [1])]}, r"shape of input ids: expected \[N, L\], got \[1\]"),
    ({"inputs": [tensor("ids", "INT32", [1, 1], [1])]}, r"datatype of input ids: expected INT64 \(int64\), got int32"),
])
def test_files_that_do_not_fit(tmp_path: Path, body: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        inputs_of(Signature((IDS,), ()), from_json(tmp_path / "sample.json", body))


def test_a_file_of_pickles_is_not_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "sample.npz", ids=np.array([{"a": 1}], object))
    with pytest.raises(InvalidInput, match="cannot be read"):
        inputs_of(Signature((IDS,), ()), Warmup(file=str(tmp_path / "sample.npz")))
    with pytest.raises(InvalidInput, match="No such file"):
        inputs_of(Signature((IDS,), ()), Warmup(file=str(tmp_path / "none.json")))
