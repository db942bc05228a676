"""SnoozeML's messages, against those of its SDK."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from snoozeml._proto.snoozeml.v1 import inference_pb2

from wakeful.errors import InvalidInput
from wakeful.frontends.grpc import snooze
from wakeful.tensors import DTYPES, Tensor

DATA = np.array([1, math.nan, -math.inf, 1e-45], "<f4").tobytes()


def request(**fields: Any) -> Any:
    made = inference_pb2.ModelInferRequest(model_id="m", **fields)
    made.inputs.add(name="x", shape=[1, 4], data_type=inference_pb2.DATA_TYPE_FP32, raw_data=DATA)
    return made


def test_a_request() -> None:
    assert snooze.decode_infer(request().SerializeToString()) == ("m", (Tensor("x", "FP32", (1, 4), DATA),), None)
    assert snooze.decode_infer(request(client_timeout_ms=250).SerializeToString()).timeout == 250


@pytest.mark.parametrize(("change", "text"), [
    (lambda made: made.ClearField("inputs"), "inputs: expected at least one"),
    (lambda made: setattr(made, "client_timeout_ms", 0), "client_timeout_ms: expected milliseconds"),
    (lambda made: setattr(made.inputs[0], "name", " "), "inputs[0].name: expected a name"),
    (lambda made: made.inputs.append(made.inputs[0]), "inputs[1].name: expected a name of its own"),
    (lambda made: setattr(made.inputs[0], "data_type", 5), "inputs[0].data_type: expected DATA_TYPE_FP32, got DATA_TYPE_INT64"),
    (lambda made: setattr(made.inputs[0], "data_type", 99), "inputs[0].data_type: expected DATA_TYPE_FP32, got 99"),
    (lambda made: made.inputs[0].shape.append(2), "inputs[0].raw_data: expected 32 for FP32 of shape [1, 4, 2], got 16"),
    (lambda made: made.inputs[0].shape.append(-2), "inputs[0].shape: expected"),
])
def test_what_cannot_be_right(change: Callable[[Any], object], text: str) -> None:
    made = request()
    change(made)
    with pytest.raises(InvalidInput) as caught:
        snooze.decode_infer(made.SerializeToString())
    assert text in caught.value.message


def test_what_is_no_message() -> None:
    with pytest.raises(InvalidInput, match=r"no snoozeml\.v1\.ModelInferRequest"):
        snooze.decode_infer(b"\x12\x7f")


@pytest.mark.parametrize("datatype", [name for name in DTYPES if name not in ("BYTES", "BF16")])
def test_answers_are_float32(datatype: str) -> None:
    elements = np.array([0, 1, 1, 0] * 50, DTYPES[datatype].numpy)
    answer = inference_pb2.ModelInferResponse.FromString(
        snooze.encode_infer("m", [Tensor("y", datatype, (50, 4), memoryview(elements.tobytes())), Tensor("e", "FP32", (0, 4), b"")], 1.5)
    )
    y, e = answer.outputs
    assert (answer.model_id, answer.duration_ms, y.name, list(y.shape), y.data_type) == ("m", 1.5, "y", [50, 4], inference_pb2.DATA_TYPE_FP32)
    assert np.frombuffer(y.raw_data, "<f4").tolist() == [0, 1, 1, 0] * 50
    assert (list(e.shape), e.raw_data) == ([0, 4], b"")


def test_strings_do_not_travel() -> None:
    with pytest.raises(InvalidInput, match="output s holds strings"):
        snooze.encode_infer("m", [Tensor("s", "BYTES", (1,), b"\0\0\0\0")], 0)
