"""ModelInfer's wire form, against protobuf's own."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.errors import InvalidInput
from wakeful.frontends.grpc import oip, wire
from wakeful.frontends.grpc.messages import message
from wakeful.tensors import DTYPES, Tensor, encode_strings


def request(*tensors: Tensor, raw: bool = True, **fields: Any) -> Any:
    made = oip.Request(model_name="m", **fields)
    for name, datatype, shape, data in tensors:
        made.inputs.add(name=name, datatype=datatype, shape=shape)
        if raw:
            made.raw_input_contents.append(bytes(data))
    return made


def decoded(made: Any) -> oip.Infer:
    return oip.decode_infer(made.SerializeToString())


X = Tensor("x", "FP32", (1, 2), np.array([1, 2], "<f4").tobytes())
S = Tensor("s", "BYTES", (2,), encode_strings([b"", "€".encode()]))


def test_raw_contents() -> None:
    made = request(X, S, id="7", model_version="1")
    made.outputs.add(name="y")
    made.parameters["priority"].uint64_param = 3
    made.parameters["timeout"].int64_param = 9
    head, id, inputs = decoded(made)
    assert (head.model, head.version, head.outputs, head.parameters, head.timeout, id) == ("m", "1", ("y",), {"priority": 3}, 9, "7")
    assert inputs == (X, S)
    assert isinstance(inputs[0].data, memoryview)


def test_what_is_not_said() -> None:
    head, id, _ = decoded(request(X))
    assert (head.version, head.outputs, head.parameters, head.timeout, id) == (None, None, None, None, "")


def test_a_head_is_remembered_without_what_differs() -> None:
    assert decoded(request(X, id="1")).head is decoded(request(X._replace(data=bytes(8)), id="another")).head


def test_fields_may_come_in_any_order() -> None:
    made = request(X, S, id="7")
    one, other = oip.Request(model_name="m", id="7"), made
    other.ClearField("model_name")
    other.ClearField("id")
    assert oip.decode_infer(other.SerializeToString() + one.SerializeToString()) == decoded(request(X, S, id="7"))


def test_fields_that_are_not_known_are_ignored() -> None:
    assert oip.decode_infer(request(X, id="7").SerializeToString() + wire.field(15, b"later") + b"\x80\x01\x05") == decoded(request(X, id="7"))


TYPED: dict[str, list[Any]] = {
    "BOOL": [True, False], "INT8": [-128, 127], "INT16": [-(2**15), 1], "INT32": [-(2**31), 1], "INT64": [-(2**63), 1], "UINT8": [0, 255],
    "UINT16": [0, 2**16 - 1], "UINT32": [0, 2**32 - 1], "UINT64": [0, 2**64 - 1], "FP32": [0.5, float("nan")], "FP64": [0.1, float("inf")],
    "BYTES": [b"", b"\xff\0"],
}


@pytest.mark.parametrize("datatype", TYPED)
def test_typed_contents(datatype: str) -> None:
    elements = TYPED[datatype]
    made = request(Tensor("x", datatype, (2,), b""), raw=False)
    getattr(made.inputs[0].contents, oip.CONTENTS[datatype]).extend(elements)
    data = encode_strings(elements) if datatype == "BYTES" else np.array(elements, DTYPES[datatype].numpy).tobytes()
    assert decoded(made).inputs == (Tensor("x", datatype, (2,), data),)


def test_many_typed_elements() -> None:
    made, elements = request(Tensor("x", "INT32", (oip.AT_ONCE + 3,), b""), raw=False), np.arange(oip.AT_ONCE + 3, dtype="<i4")
    made.inputs[0].contents.int_contents.extend(elements)
    assert decoded(made).inputs[0].data == elements.tobytes()


def wrong(change: Callable[[Any], object], *tensors: Tensor, **options: Any) -> str:
    made = request(*(tensors or (X,)), **options)
    change(made)
    with pytest.raises(InvalidInput) as caught:
        decoded(made)
    return caught.value.message


@pytest.mark.parametrize(("change", "text"), [
    (lambda made: made.raw_input_contents.append(b""), "raw_input_contents: expected one for each of the 1 inputs"),
    (lambda made: made.raw_input_contents.pop(), "raw_input_contents: expected one for each of the 1 inputs"),
    (lambda made: made.inputs[0].shape.append(3), "raw_input_contents[0]: expected 24 for FP32 of shape [1, 2, 3], got 8"),
    (lambda made: made.inputs[0].shape.append(-1), "inputs[0].shape: expected dimensions of 0 or more"),
    (lambda made: made.inputs[0].shape.extend([1] * 63), "inputs[0].shape: expected at most 64 dimensions, got 65"),
    (lambda made: setattr(made.inputs[0], "datatype", "FP31"), "inputs[0].datatype: expected one of BOOL"),
    (lambda made: made.inputs.add(name="x", datatype="FP32"), "inputs[1].name: expected a name of its own, got 'x' again"),
    (lambda made: setattr(made.inputs[0].parameters["shared_memory_region"], "string_param", "r"), "shared memory is not supported"),
    (lambda made: setattr(made.outputs.add(name="y").parameters["classification"], "int64_param", 1), "classification is not supported"),
    (lambda made: [made.outputs.add(name="y"), made.outputs.add(name="y")], "outputs[1].name: expected a name of its own"),
    (lambda made: setattr(made.parameters["timeout"], "int64_param", -1), "parameters.timeout: expected microseconds"),
    (lambda made: setattr(made.parameters["timeout"], "bool_param", True), "parameters.timeout: expected microseconds"),
    (lambda made: made.inputs[0].contents.fp32_contents.extend([1, 2]), "raw_input_contents: expected none where inputs have contents"),
])
def test_what_cannot_be_right(change: Callable[[Any], object], text: str) -> None:
    assert text in wrong(change)


@pytest.mark.parametrize(("datatype", "field", "elements", "text"), [
    ("FP32", "fp32_contents", [1, 2, 3], "inputs[0].contents.fp32_contents: expected 2 elements for shape [2], got 3"),
    ("FP32", "fp64_contents", [1, 2], "inputs[0].contents: expected fp32_contents for FP32, got fp64_contents"),
    ("INT8", "int_contents", [1, 128], "an element does not fit into INT8"),
    ("FP16", "fp32_contents", [1, 2], "FP16 travels in raw_input_contents only"),
])
def test_typed_contents_that_cannot_be_right(datatype: str, field: str, elements: list[Any], text: str) -> None:
    assert text in wrong(lambda made: getattr(made.inputs[0].contents, field).extend(elements), Tensor("x", datatype, (2,), b""), raw=False)


def test_a_bool_is_0_or_1() -> None:
    assert "bytes 0 and 1" in wrong(lambda _: None, Tensor("b", "BOOL", (2,), b"\0\2"))


NO_MESSAGE = [b"\x0a", b"\x0a\x05m", b"\xff" * 30, b"\x3a" + b"\xff" * 8 + b"\x7f", b"\x2a\x02\x0a\x09", b"\x07\x01"]


@pytest.mark.parametrize("encoded", NO_MESSAGE)
def test_what_is_no_message(encoded: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"no inference\.ModelInferRequest"):
        oip.decode_infer(encoded)


def test_an_id_that_is_no_text() -> None:
    with pytest.raises(InvalidInput, match="id: expected UTF-8"):
        oip.decode_infer(request(X).SerializeToString() + wire.field(3, b"\xff"))


@given(st.integers(0, 2**35))
def test_varints(number: int) -> None:
    made = oip.Response()
    made.parameters["k"].uint64_param = number
    assert wire.varint(number) in made.SerializeToString()


@given(st.lists(st.tuples(st.integers(1, 7), st.binary(max_size=300))))
def test_a_message_is_cut_where_its_fields_are(fields: list[tuple[int, bytes]]) -> None:
    encoded = b"".join(wire.field(number, data) for number, data in fields)
    cut = wire.cut(encoded, 7)
    assert cut is not None
    assert [(number, encoded[data:end]) for number, _, data, end in cut] == fields
    assert [begin for _, begin, _, _ in cut] == [0, *(end for *_, end in cut)][: len(cut)]


def long_varint(number: int, padding: int) -> bytes:
    """With more bytes than it takes."""
    short = wire.varint(number)
    return short[:-1] + bytes([short[-1] | 0x80]) + b"\x80" * (padding - 1) + b"\0" if padding else short


numbers = st.sampled_from([0, 1, 2, 4, 2**31, 2**35, 2**63])
pieces = st.one_of(
    st.builds(wire.field, st.integers(1, 7), st.sampled_from([b"", b"m", "€".encode(), b"\xff", bytes(8)]) | st.binary(max_size=6)),
    st.sampled_from([request(X, id="7"), request(X, raw=False), request(S), request(model_version="1")]).map(lambda made: made.SerializeToString()),
    st.builds(lambda number, data, padding: wire.tag(number) + long_varint(len(data), padding) + data,
              st.integers(1, 7), st.binary(max_size=4), st.integers(0, 10)),
    st.builds(lambda head, number, padding: bytes([head]) + long_varint(number, padding), st.integers(0, 255), numbers, st.integers(0, 10)),
    st.builds(lambda number, padding: long_varint(number << 3 | 2, padding) + b"\1a", st.integers(1, 20), st.integers(0, 10)),
    st.binary(max_size=20),
)


@settings(max_examples=1000)
@given(st.lists(pieces, max_size=5).map(b"".join), st.integers(0, 3))
def test_a_message_is_refused_or_read_as_protobuf_does(encoded: bytes, cut_off: int) -> None:
    encoded = encoded[: len(encoded) - cut_off]
    try:
        expected = oip.Request.FromString(encoded)
    except DecodeError:
        with pytest.raises(InvalidInput):
            oip.decode_infer(encoded)
        return
    head, id, raw = oip._divide(encoded)
    read = oip.Request.FromString(head)
    read.id = id
    read.raw_input_contents.extend(bytes(data) for data in raw)
    read.DiscardUnknownFields()
    expected.DiscardUnknownFields()
    assert read == expected
    with suppress(InvalidInput):
        oip.decode_infer(encoded)


@pytest.mark.parametrize("id", ["", "7", "€" * 100])
def test_answers(id: str) -> None:
    large = Tensor("z", "FP64", (100, 5), bytes(4000))
    answer = oip.Response.FromString(oip.encode_infer("m", "1", id, [X._replace(data=memoryview(X.data)), S, large]))
    assert (answer.model_name, answer.model_version, answer.id) == ("m", "1", id)
    read = zip(answer.outputs, answer.raw_output_contents, strict=True)
    assert [Tensor(one.name, one.datatype, tuple(one.shape), data) for one, data in read] == [X, S, large]


def test_an_answer_in_a_stream_is_the_last_of_its_request() -> None:
    streamed = Stream.FromString(oip.streamed(oip.encode_infer("m", "1", "7", [X])))
    assert (streamed.error_message, streamed.infer_response.id) == ("", "7")
    assert streamed.infer_response.parameters["triton_final_response"].bool_param


def test_an_error_in_a_stream_says_whose_it_is() -> None:
    streamed = Stream.FromString(oip.streamed_error("so", "7"))
    assert (streamed.error_message, streamed.infer_response.id) == ("so", "7")
    assert not Stream.FromString(oip.streamed_error("so", "")).HasField("infer_response")


Stream = message("inference.ModelStreamInferResponse")
