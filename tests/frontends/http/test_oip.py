"""Bodies of the Open Inference Protocol: JSON and binary, both ways, and what the unmodified client makes of them."""

import json
import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient import http as triton

from wakeful.errors import InvalidInput
from wakeful.frontends.http import oip
from wakeful.tensors import DTYPES, Tensor, encode_strings

TINY = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[0.1,0.2,0.3,0.4]}]}'

repeatable = settings(deadline=None, derandomize=True)


def tensor(name: str, datatype: str, values: list[Any], shape: tuple[int, ...] | None = None) -> Tensor:
    data = encode_strings(values) if datatype == "BYTES" else np.array(values, DTYPES[datatype].numpy).tobytes()
    return Tensor(name, datatype, (len(values),) if shape is None else shape, data)


def entry(**changes: Any) -> dict[str, Any]:
    whole = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]} | changes
    return {key: value for key, value in whole.items() if value is not ...}


def request(*inputs: dict[str, Any], **others: Any) -> bytes:
    return json.dumps({"inputs": inputs or [entry()]} | others).encode()


def refusal(body: bytes, json_length: int | None = None) -> str:
    with pytest.raises(InvalidInput) as caught:
        oip.decode_infer(body, json_length)
    return caught.value.message


@st.composite
def tensors(draw: st.DrawFn, name: str = "x") -> Tensor:
    datatype = draw(st.sampled_from(sorted(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    count = int(np.prod(shape, dtype=int))
    if datatype == "BYTES":
        elements = draw(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=count, max_size=count))
        return Tensor(name, datatype, shape, encode_strings([element.encode() for element in elements]))
    if datatype == "BOOL":
        return Tensor(name, datatype, shape, bytes(draw(st.lists(st.booleans(), min_size=count, max_size=count))))
    size = count * DTYPES[datatype].itemsize
    return Tensor(name, datatype, shape, draw(st.binary(min_size=size, max_size=size)))


def finite(given: Tensor) -> Tensor:
    """The same with 0 for what JSON cannot say."""
    if not given.datatype.startswith("FP"):
        return given
    array = np.frombuffer(given.data, DTYPES[given.datatype].numpy)
    return given._replace(data=np.where(np.isfinite(array), array, 0).astype(array.dtype).tobytes())


def as_request(outputs: list[Tensor], binary: oip.Binary) -> tuple[bytes, int | None]:
    """What we answer, turned into what we are asked: the entries have the same form."""
    body, length = oip.encode_infer("m", "1", "", outputs, binary)
    header = json.loads(body[:length])
    text = json.dumps({"inputs": header["outputs"]}).encode()
    return text + (b"" if length is None else body[length:]), None if length is None else len(text)


# ── there and back ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@repeatable
@given(tensors("a"), tensors("b"))
def test_binary_there_and_back_is_bit_exact(a: Tensor, b: Tensor) -> None:
    body, length = as_request([a, b], True)
    assert oip.decode_infer(body, length).inputs == (a, b)


@repeatable
@given(tensors("a"), tensors("b"))
def test_json_there_and_back(a: Tensor, b: Tensor) -> None:
    wanted = [finite(one) for one in (a, b) if one.datatype != "BF16"]
    body, length = as_request(wanted, False)
    assert length is None
    assert oip.decode_infer(body).inputs == tuple(wanted)


@repeatable
@given(tensors("a"), tensors("b"))
def test_json_and_binary_mixed(a: Tensor, b: Tensor) -> None:
    wanted = [a, finite(b._replace(datatype="UINT16") if b.datatype == "BF16" else b)]
    body, length = as_request(wanted, frozenset({"a"}))
    assert oip.decode_infer(body, length).inputs == tuple(wanted)


@repeatable
@given(tensors("y"))
def test_a_json_answer_is_strict_and_complete(given: Tensor) -> None:
    body, _ = oip.encode_infer("m", "1", "", [given])

    def refuse(token: str) -> None:
        raise AssertionError(token)

    answer = json.loads(body, parse_constant=refuse)
    assert len(answer["outputs"][0]["data"]) == np.prod(given.shape, dtype=int)


# ── request ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_smallest_request() -> None:
    assert oip.decode_infer(TINY) == oip.Infer((Tensor("x", "FP32", (1, 4), struct.pack("<4f", 0.1, 0.2, 0.3, 0.4)),))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer(kind: Any) -> None:
    assert oip.decode_infer(kind(TINY)) == oip.decode_infer(TINY)


def test_everything_that_can_be_asked() -> None:
    infer = oip.decode_infer(
        request(
            id="a",
            ignored=[1],
            parameters={"timeout": 5000, "binary_data_output": True, "temperature": 0.5},
            outputs=[{"name": "c"}, {"name": "y", "parameters": {"binary_data": False, "classification": 0}}],
        )
    )
    assert (infer.id, infer.timeout, infer.parameters) == ("a", 5000, {"temperature": 0.5})
    assert (infer.outputs, infer.binary) == (("c", "y"), frozenset({"c"}))


@pytest.mark.parametrize(
    ("others", "outputs", "binary"),
    [
        ({}, None, False),
        ({"parameters": {"binary_data_output": True}}, None, True),
        ({"outputs": []}, None, False),
        ({"outputs": [{"name": "a", "parameters": {"binary_data": True}}]}, ("a",), True),
        ({"outputs": [{"name": "a"}], "parameters": {"binary_data_output": True}}, ("a",), True),
        ({"outputs": [{"name": "a", "parameters": {"binary_data": False}}], "parameters": {"binary_data_output": True}}, ("a",), False),
        ({"id": None, "outputs": None, "parameters": None}, None, False),
    ],
)
def test_which_outputs_are_binary(others: dict[str, Any], outputs: tuple[str, ...] | None, binary: oip.Binary) -> None:
    infer = oip.decode_infer(request(**others))
    assert (infer.outputs, infer.binary, infer.parameters, infer.timeout) == (outputs, binary, None, None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "request"),
        (b"[]", "request"),
        (b"null", "request"),
        (b"{", "request"),
        (b"\xff\xfe", "request"),
        (TINY + b"x", "request"),
        (b"[" * 100_000, "request"),
        (b'{"inputs":' + b"[" * 100_000, "inputs[0]"),
        (b'{"inputs":[{"name":"x","zz":' + b"[" * 100_000, "request"),
        (b'{"inputs":[{"name":"\xff","shape":[1],"datatype":"FP32","data":[1]}]}', "request"),
        (b'{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["\xff"]}]}', "inputs[0].data"),
        (b"{}", "request"),
        (request(entry(name=...)), "inputs[0]"),
        (request(entry(shape=...)), "inputs[0]"),
        (request(entry(datatype=...)), "inputs[0]"),
        (request(entry(data=...)), "inputs[0].data"),
        (request(entry(data=None)), "inputs[0].data"),
        (request(entry(), entry(name="b", datatype="FP31")), "inputs[1].datatype"),
        (request(entry(), entry()), "inputs[1].name"),
        (request(entry(shape="-1")), "inputs[0].shape"),
        (request(entry(shape=[-1, 4])), "inputs[0].shape[0]"),
        (request(entry(shape=[1.5])), "inputs[0].shape[0]"),
        (request(entry(shape=[2**63])), "inputs[0].shape[0]"),
        (request(entry(shape=[1] * 65)), "inputs[0].shape"),
        (request(entry(shape=[4611686018427387904, 4])), "inputs[0].data"),
        (request(entry(shape=[1, 16], data=[0] * 18)), "inputs[0].data"),
        (request(entry(parameters={"binary_data_size": 8})), "inputs[0].parameters.binary_data_size"),
        (request(entry(parameters={"shared_memory_region": "r"}, data=...)), "inputs[0].parameters.shared_memory_region"),
        (request(id=7), "id"),
        (request(parameters={"timeout": -1}), "parameters.timeout"),
        (request(parameters={"timeout": True}), "parameters.timeout"),
        (request(parameters={"timeout": 10**400}), "parameters.timeout"),
        (request(parameters={"binary_data_output": 1}), "parameters.binary_data_output"),
        (request(parameters={"x": [1]}), "parameters[...]"),
        (request(outputs=[{"name": "a"}, {"name": "a"}]), "outputs[1].name"),
        (request(outputs=[{"name": "a", "parameters": {"classification": 3}}]), "outputs[0].parameters.classification"),
        (request(outputs=[{"name": "a", "parameters": {"shared_memory_region": "r"}}]), "outputs[0].parameters.shared_memory_region"),
        (request(entry(data=[1, float("nan")])), "inputs[0].data[1]"),
        (request(entry(data=[[1, float("-inf")]])), "inputs[0].data[0][1]"),
        (TINY.replace(b"0.3", b"1e999"), "inputs[0].data[2]"),
        (request(entry(datatype="BYTES", data=["ok", "\udcff"])), "inputs[0].data[1]"),
    ],
)
def test_the_field_is_named(body: bytes, field: str) -> None:
    message = refusal(body)
    assert message.startswith(f"{field}: ")
    assert len(message) < 250


@repeatable
@given(st.data())
def test_whatever_comes_is_understood_or_refused(data: st.DataObject) -> None:
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["binary_data_size", "timeout"]), inner))
    shape = st.lists(st.integers(-1, 3) | st.just(2**62)) | values
    datatype = st.sampled_from(sorted(DTYPES)) | values
    fields = {"name": st.just("x") | values, "shape": shape, "datatype": datatype, "data": values, "parameters": values}
    one = st.fixed_dictionaries({}, optional=fields)
    whole = data.draw(
        st.fixed_dictionaries({"inputs": st.lists(one)}, optional={"outputs": values, "id": values, "parameters": values}) | values
    )
    body = bytearray(json.dumps(whole, ensure_ascii=data.draw(st.booleans())).encode(errors="replace"))
    for _ in range(data.draw(st.integers(0, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidInput):
        oip.decode_infer(bytes(body), data.draw(st.none() | st.integers(-1, len(body) + 1)))


def test_an_unknown_datatype_is_answered_with_those_that_exist() -> None:
    assert all(name in refusal(request(entry(datatype="float32"))) for name in [*DTYPES, "float32"])


def test_a_long_malformed_body_is_not_searched_for_the_field() -> None:
    body = request(entry(shape=[40_000], data=[0.5] * 39_999 + [float("nan")]))
    assert refusal(body).startswith("request: JSON is malformed")


# ── binary data ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def with_binary(data: bytes, *inputs: dict[str, Any]) -> tuple[bytes, int]:
    header = request(*inputs)
    return header + data, len(header)


def binary_entry(size: int, **changes: Any) -> dict[str, Any]:
    return entry(data=..., parameters={"binary_data_size": size}, **changes)


def test_binary_data_are_not_copied() -> None:
    body, length = with_binary(struct.pack("<2f", 1, 2), binary_entry(8))
    data = oip.decode_infer(body, length).inputs[0].data
    assert isinstance(data, memoryview)
    assert data.obj is body


def test_json_and_binary_inputs_in_one_request() -> None:
    body, length = with_binary(
        b"\1\2\3", binary_entry(1, name="a", shape=[1], datatype="INT8"), entry(), binary_entry(2, name="b", datatype="UINT8")
    )
    assert [bytes(one.data) for one in oip.decode_infer(body, length).inputs] == [b"\1", struct.pack("<2f", 1, 2), b"\2\3"]


@pytest.mark.parametrize(
    ("data", "given", "field"),
    [
        (bytes(8), binary_entry(9), "inputs[0].parameters.binary_data_size"),
        (bytes(9), binary_entry(8), "request"),
        (bytes(4), binary_entry(4), "inputs[0].parameters.binary_data_size"),
        (bytes(8), binary_entry(8, shape=[2**62, 4]), "inputs[0].parameters.binary_data_size"),
        (bytes(8), binary_entry(8, datatype="FP31"), "inputs[0].datatype"),
        (bytes(8), entry(parameters={"binary_data_size": 8}), "inputs[0].data"),
        (b"", binary_entry(-1), "inputs[0].parameters.binary_data_size"),
        (b"\0\2", binary_entry(2, datatype="BOOL"), "inputs[0].data"),
        (b"\3\0\0\0ab", binary_entry(6, datatype="BYTES", shape=[1]), "inputs[0].data"),
        (b"\1\0\0\0ab", binary_entry(6, datatype="BYTES", shape=[1]), "inputs[0].data"),
        (b"\1\0\0\0a", binary_entry(5, datatype="BYTES", shape=[59]), "inputs[0].data"),
        (b"\1\0\0\0a", binary_entry(5, datatype="BYTES", shape=[2**62, 4]), "inputs[0].data"),
    ],
)
def test_binary_sizes_must_agree(data: bytes, given: dict[str, Any], field: str) -> None:
    assert refusal(*with_binary(data, given)).startswith(f"{field}: ")


@pytest.mark.parametrize("length", [-1, len(TINY) + 1])
def test_the_header_length_must_lie_in_the_body(length: int) -> None:
    assert refusal(TINY, length).startswith("Inference-Header-Content-Length: ")


def test_no_header_at_all() -> None:
    assert refusal(TINY, 0).startswith("request: ")


# ── answer ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("id", ["", 'a"é'])
@pytest.mark.parametrize("binary", [False, True, frozenset({"y1"})])
def test_the_answer(count: int, id: str, binary: oip.Binary) -> None:
    outputs = [tensor(f"y{index}", "FP32", [0.1, 2], (1, 2)) for index in range(count)]
    body, length = oip.encode_infer("m", "1", id, outputs, binary)
    answer = json.loads(body[:length])
    assert (answer["model_name"], answer["model_version"], answer.get("id", "")) == ("m", "1", id)
    assert ("id" in answer) == bool(id)
    attached = 0
    for output, sent in zip(outputs, answer["outputs"], strict=True):
        assert (sent["name"], sent["datatype"], sent["shape"]) == (output.name, "FP32", [1, 2])
        if binary is True or (binary and output.name in binary):
            assert sent["parameters"] == {"binary_data_size": 8}
            attached += 8
        else:
            assert sent["data"] == [0.1, 2.0]
    assert length == (len(body) - attached if attached else None)


def test_the_answer_does_not_share_the_outputs_memory() -> None:
    slot = bytearray(struct.pack("<2f", 1, 2))
    body, _ = oip.encode_infer("m", "1", "", [Tensor("y", "FP32", (2,), memoryview(slot))], True)
    slot[:] = bytes(8)
    assert body.endswith(struct.pack("<2f", 1, 2))


# ── the unmodified client ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

CLIENT_ARRAYS = {
    "x": np.array([[0.5, -1.25]], "f4"),
    "i": np.array([2**63 - 1, -(2**63)], "i8"),
    "b": np.array([True, False]),
    "h": np.array([1.5], "f2"),
    "s": np.array(["", "€", "a\0b"], object),
}
TRITON_NAMES = {"x": "FP32", "i": "INT64", "b": "BOOL", "h": "FP16", "s": "BYTES"}


@pytest.mark.parametrize("binary_in", [False, True])
@pytest.mark.parametrize("binary_out", [False, True])
def test_tritonclient_reads_back_what_it_wrote(binary_in: bool, binary_out: bool) -> None:
    inputs = []
    for name, array in CLIENT_ARRAYS.items():
        inputs.append(triton.InferInput(name, list(array.shape), TRITON_NAMES[name]))
        inputs[-1].set_data_from_numpy(array, binary_data=binary_in)
    wanted = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in CLIENT_ARRAYS]
    body, length = triton.InferenceServerClient.generate_request_body(inputs, wanted, request_id="7", timeout=9)
    infer = oip.decode_infer(body, length)
    assert (infer.id, infer.timeout, infer.outputs, infer.binary) == ("7", 9, tuple(CLIENT_ARRAYS), binary_out)

    answer, answer_length = oip.encode_infer("m", "1", infer.id, infer.inputs, infer.binary)
    result = triton.InferenceServerClient.parse_response_body(answer, header_length=answer_length)
    for name, array in CLIENT_ARRAYS.items():
        read = result.as_numpy(name)
        expected = array.astype(str).tolist() if name == "s" else array.tolist()
        decoded = [one.decode() if isinstance(one, bytes) else one for one in read] if name == "s" else read.tolist()
        assert decoded == expected


def test_tritonclient_without_outputs_asks_for_binary() -> None:
    one = triton.InferInput("x", [1, 2], "FP32")
    one.set_data_from_numpy(CLIENT_ARRAYS["x"])
    infer = oip.decode_infer(*triton.InferenceServerClient.generate_request_body([one]))
    assert (infer.outputs, infer.binary, infer.parameters) == (None, True, None)


# ── the repository ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize(("body", "ready"), [(b"", False), (b"{}", False), (b'{"ready":true}', True)])
def test_repository_index(body: bytes, ready: bool) -> None:
    assert oip.decode_repository_index(body) is ready


@pytest.mark.parametrize("body", [b"", b"{}", b'{"parameters":{"unload_dependents":false}}', b'{"parameters":null}'])
def test_load_and_unload_bodies(body: bytes) -> None:
    oip.decode_load(body)
    oip.decode_unload(body)


@pytest.mark.parametrize(("name", "value"), [("config", "["), ("config", "[]"), ("config", {}), ("file:1/model.onnx", "{}")])
def test_a_load_brings_settings_and_nothing_else(name: str, value: object) -> None:
    assert oip.decode_load(json.dumps({"parameters": {"config": '{"a":1}'}}).encode()) == {"a": 1}
    with pytest.raises(InvalidInput, match=f"parameters.{name}: "):
        oip.decode_load(json.dumps({"parameters": {name: value}}).encode())


def test_a_bad_control_body() -> None:
    for decode in (oip.decode_load, oip.decode_unload, oip.decode_repository_index):
        with pytest.raises(InvalidInput, match="request: expected `object`"):
            decode(b"[]")
