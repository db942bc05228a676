"""SnoozeML's bodies."""

import json
import struct
from collections.abc import Mapping

import numpy as np
import pytest

from wakeful.errors import InvalidInput
from wakeful.frontends.http import snooze
from wakeful.frontends.http.errors import render
from wakeful.tensors import DTYPES, Tensor, encode_strings


def body(*inputs: Mapping[str, object]) -> bytes:
    return json.dumps({"inputs": inputs}).encode()


def test_inputs_are_doubles() -> None:
    first = {"name": "input", "shape": [1, 2], "data": [0.10000000149011612, 3]}
    second = {"name": "ids", "shape": [1], "data": [2**24 + 1], "extra": 1}
    assert snooze.decode_infer(body(first, second)) == (
        Tensor("input", "FP64", (1, 2), struct.pack("<2d", 0.10000000149011612, 3)),
        Tensor("ids", "FP64", (1,), struct.pack("<d", 2**24 + 1)),
    )


def test_zero_dimensions_and_nested_data_are_taken() -> None:
    assert snooze.decode_infer(body({"name": "x", "shape": [0, 4], "data": []}))[0].data == b""
    assert snooze.decode_infer(body({"name": "x", "shape": [2, 1], "data": [[1], [2]]}))[0].data == struct.pack("<2d", 1, 2)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (b"", "request"),
        (b"[]", "request"),
        (b"{}", "request"),
        (body(), "inputs"),
        (body({"name": " ", "shape": [1], "data": [1]}), "inputs[0].name"),
        (body({"name": "x", "shape": [1], "data": [1]}, {"name": "x", "shape": [1], "data": [1]}), "inputs[1].name"),
        (body({"name": "x", "shape": [1], "data": ["1"]}), "inputs[0].data[0]"),
        (body({"name": "x", "shape": [1]}), "inputs[0]"),
        (b'{"inputs":[{"name":"x","shape":[2],"data":[1,NaN]}]}', "inputs[0].data[1]"),
    ],
)
def test_the_field_is_named(given: bytes, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        snooze.decode_infer(given)
    assert caught.value.message.startswith(f"{field}: ")


@pytest.mark.parametrize(("shape", "data"), [([], [1]), ([-1, 4], [1]), ([2], [1]), ([1, 16], [1] * 18), ("-1", [1]), ([1.5], [1])])
def test_a_wrong_shape_is_called_a_shape_mismatch(shape: object, data: list[int]) -> None:
    with pytest.raises(InvalidInput) as caught:
        snooze.decode_infer(body({"name": "x", "shape": shape, "data": data}))
    status, _, answer = render(caught.value, "snooze")
    assert (status, "shape mismatch" in json.loads(answer)["error"]) == (400, True)


@pytest.mark.parametrize("datatype", [name for name in DTYPES if name not in {"BYTES", "BF16"}])
def test_every_number_becomes_a_float(datatype: str) -> None:
    data = np.array([0, 1, 1], DTYPES[datatype].numpy).tobytes()
    answer = json.loads(snooze.encode_infer("m", [Tensor("y", datatype, (3, 1), memoryview(data))], 1.25))
    assert answer == {"model_id": "m", "outputs": [{"name": "y", "shape": [3, 1], "data": [0.0, 1.0, 1.0]}], "duration_ms": 1.25}
    assert all(isinstance(value, float) for value in answer["outputs"][0]["data"])


def test_bf16_becomes_a_float() -> None:
    data = (np.array([1.5, -3], "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    assert json.loads(snooze.encode_infer("m", [Tensor("y", "BF16", (2,), data)], 0))["outputs"][0]["data"] == [1.5, -3.0]


def test_what_is_not_finite_is_null() -> None:
    data = np.array([np.nan, np.inf, 1e300, 1], "<f8").tobytes()
    assert b'"data":[null,null,null,1.0]' in snooze.encode_infer("m", [Tensor("y", "FP64", (4,), data)], 0)


def test_several_outputs_and_none() -> None:
    two = [Tensor("a", "FP32", (), struct.pack("<f", 0.1)), Tensor('"b"', "INT64", (0,), b"")]
    assert json.loads(snooze.encode_infer("m", two, 0))["outputs"] == [
        {"name": "a", "shape": [], "data": [0.1]},
        {"name": '"b"', "shape": [0], "data": []},
    ]
    assert json.loads(snooze.encode_infer("m", [], 2)) == {"model_id": "m", "outputs": [], "duration_ms": 2.0}


def test_strings_are_refused() -> None:
    with pytest.raises(InvalidInput, match="float"):
        snooze.encode_infer("m", [Tensor("y", "BYTES", (1,), encode_strings([b"a"]))], 0)


def test_model_info_has_whole_numbers_and_no_null() -> None:
    info = snooze.model_info(
        id="m",
        state="idle",
        onnx_path="/m.onnx",
        idle_timeout=0.25,
        max_batch_size=16,
        max_batch_delay=0.010,
        last_accessed=None,
        description=None,
        pinned=False,
        memory_bytes=None,
    )
    assert info == {
        "id": "m",
        "state": "idle",
        "onnx_path": "/m.onnx",
        "idle_timeout_secs": 1,
        "max_batch_size": 16,
        "max_batch_delay_ms": 10,
        "last_accessed_secs_ago": 0,
        "description": None,
        "pinned": False,
        "memory_bytes": 0,
    }
    assert {key for key, value in info.items() if value is None} == {"description"}
