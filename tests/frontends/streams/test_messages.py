"""Messages to calls and answers to messages, as SnoozeML's SDK writes and reads them."""

import json

import numpy as np
import pytest
from snoozeml._proto import ModelInferRequest
from snoozeml.streams import StreamInferRequest, StreamInferResponse

from wakeful.errors import InvalidInput, NotFound
from wakeful.frontends.streams.messages import LONGEST_ID, Form, Json, failure
from wakeful.frontends.streams.protobuf import Protobuf
from wakeful.tensors import Tensor

ROW = np.array([[0.1, 2, -3]], np.float32)


FORMS: dict[str, tuple[Form, str, str]] = {"json": (Json(), "FP64", "<f8"), "protobuf": (Protobuf(), "FP32", "<f4")}


@pytest.mark.parametrize("form", FORMS)
def test_a_request_of_the_sdk(form: str) -> None:
    codec, datatype, numpy_type = FORMS[form]
    sent = StreamInferRequest.from_inputs({"x": ROW}, model_id="m", reply_to="r")
    call = codec.open(sent.to_bytes(form))
    assert (call.id, call.model, call.reply_to, call.timeout, call.fault) == (sent.id, "m", "r", None, None)
    (tensor,) = call.inputs()
    assert (tensor.name, tensor.datatype, tensor.shape) == ("x", datatype, (1, 3))
    assert np.array_equal(np.frombuffer(tensor.data, numpy_type), ROW[0].astype(numpy_type))


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_to_the_sdk(form: str) -> None:
    codec, _, _ = FORMS[form]
    call = Json().open(b'{"id": "i", "inputs": []}')
    outputs = [Tensor("y", "FP32", (1, 3), ROW.tobytes()), Tensor("n", "INT64", (2,), np.array([1, -2], "<i8").tobytes())]
    answer = StreamInferResponse.from_bytes(codec.answer(call, "m", outputs, 1.5), form, default_id="i")
    assert (answer.id, answer.model_id, answer.status, answer.duration_ms, answer.error) == ("i", "m", "success", 1.5, None)
    assert np.array_equal(answer.get_numpy("y"), ROW)
    assert np.array_equal(answer.get_numpy("n"), [1, -2])


def test_an_error_to_the_sdk() -> None:
    answer = StreamInferResponse.from_bytes(failure("i\ud800", "m", NotFound("no \ud800 model"), 2.0), "json")
    assert (answer.id, answer.model_id, answer.status, answer.duration_ms, answer.error) == ("i?", "m", "error", 2.0, "no ? model")
    assert not answer.is_success


@pytest.mark.parametrize("blank", [None, "", "  "])
def test_blank_is_absent(blank: str | None) -> None:
    call = Json().open(json.dumps({"id": blank, "model_id": blank, "reply_to": blank, "inputs": []}).encode())
    assert (len(call.id), call.model, call.reply_to, call.fault) == (32, None, None, None)


def test_an_id_has_an_end() -> None:
    call = Json().open(json.dumps({"id": "x" * (LONGEST_ID + 1), "inputs": []}).encode())
    assert call.id == "x" * LONGEST_ID
    assert call.fault is not None
    assert "id: expected at most 256 characters" in call.fault.message


@pytest.mark.parametrize("target", ["a", "snooze.replies", "replies:{user-1}", "amq.rabbitmq.reply-to.g1h2+/==.x", "~" * 255])
def test_targets(target: str) -> None:
    assert Json().open(json.dumps({"inputs": [], "reply_to": target}).encode()).reply_to == target


@pytest.mark.parametrize(("data", "shape"), [("[]", (0,)), ("[[], []]", (2, 0)), ("[[[1]]]", (1, 1, 1)), ("[1, 2]", (2,))])
def test_a_shape_that_is_not_given_is_that_of_the_data(data: str, shape: tuple[int, ...]) -> None:
    (tensor,) = Json().open(b'{"inputs": [{"name": "x", "data": %b}]}' % data.encode()).inputs()
    assert tensor.shape == shape


@pytest.mark.parametrize("data", ["1", "null", "{}", "[[1], 2]", "[[1], [2, 3]]", '["a"]', "[" * 5000 + "]" * 5000, "[" * 70 + "1" + "]" * 70])
def test_data_that_is_no_tensor(data: str) -> None:
    with pytest.raises(InvalidInput, match=r"inputs\[0\]\.(data|shape)|request"):
        Json().open(b'{"inputs": [{"name": "x", "data": %b}]}' % data.encode()).inputs()


def test_what_protobuf_says_beside() -> None:
    request = ModelInferRequest(client_timeout_ms=1500, parameters={"correlation_id": "c"})
    call = Protobuf().open(request.SerializeToString())
    assert (call.id, call.model, call.reply_to, call.timeout) == ("c", None, None, 1.5)
    with pytest.raises(InvalidInput, match="inputs: expected at least one"):
        call.inputs()


def test_what_is_no_protobuf() -> None:
    with pytest.raises(InvalidInput, match=r"no snoozeml\.v1\.ModelInferRequest"):
        Protobuf().open(b"{}")
