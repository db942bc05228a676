"""What is sent is what a server of the protocol reads: this daemon's own decoder is asked."""

import numpy as np
import pytest

from wakeful.errors import InvalidInput
from wakeful.frontends.http.oip import Infer, decode_infer
from wakeful.loadgen.calls import Call, infer_call, post
from wakeful.tensors import Tensor, encode_strings

FLOATS = Tensor("x", "FP32", (2, 2), np.array([0.1, 2, -3.5, 1e-7], "<f4").tobytes())
WORDS = Tensor("w", "BYTES", (2, 1), encode_strings([b"wake", "fünf".encode()]))
FLAGS = Tensor("b", "BOOL", (2,), b"\x01\x00")
LARGE = Tensor("i", "INT64", (2,), np.array([-(2**63), 2**63 - 1], "<i8").tobytes())
HALF = Tensor("h", "FP16", (2,), np.array([0.5, 65504], "<f2").tobytes())


def decoded(call: Call) -> tuple[dict[str, str], Infer]:
    head, _, body = call.data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {"": first} | {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert int(headers["content-length"]) == len(body)
    length = headers.get("inference-header-content-length")
    return headers, decode_infer(body, int(length) if length else None)


@pytest.mark.parametrize("binary", [False, True])
def test_infer_call(binary: bool) -> None:
    tensors = (FLOATS, WORDS, FLAGS, LARGE, HALF)
    call = infer_call("host:80", "my model", tensors, binary=binary)
    assert (call.rows, call.label) == (2, "my model")
    headers, infer = decoded(call)
    assert headers[""] == "POST /v2/models/my%20model/infer HTTP/1.1"
    assert headers["host"] == "host:80"
    assert infer.binary is binary
    for sent, got in zip(tensors, infer.inputs, strict=True):
        assert (got.name, got.datatype, tuple(got.shape), bytes(got.data)) == (*sent[:3], bytes(sent.data))


def test_path_label_and_scalars() -> None:
    call = infer_call("h", "m", [Tensor("s", "UINT8", (), b"\x07")], path="/predict", label="other")
    assert (call.rows, call.label) == (1, "other")
    assert decoded(call)[0][""] == "POST /predict HTTP/1.1"


def test_bf16_has_no_json() -> None:
    tensor = Tensor("x", "BF16", (1,), b"\0\0")
    with pytest.raises(InvalidInput, match="binary"):
        infer_call("h", "m", [tensor])
    assert infer_call("h", "m", [tensor], binary=True).rows == 1


def test_post() -> None:
    assert post("h", "/p", b"abc", "text/plain", ("X", "1")) == (
        b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nX: 1\r\n\r\nabc"
    )
