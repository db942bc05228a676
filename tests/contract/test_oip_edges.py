"""What no well-behaved client sends, and what proxies and tools do to bodies: refused with the field named, and nobody else is hurt."""

import gzip
import json
import socket
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.contract.conftest import MAX_BODY
from tests.daemon import Daemon

GOOD = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}


def body(**changed: Any) -> dict[str, Any]:
    return {"inputs": [{key: value for key, value in (GOOD | changed).items() if value is not ...}]}


def infer(daemon: Daemon, given: Any, headers: dict[str, str] | None = None, model: str = "ident") -> tuple[int, Any]:
    return daemon.call("POST", f"/v2/models/{model}/infer", given, headers)


# ── JSON that is wrong ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (b"", "request"),
        (b"[]", "request"),
        (b"null", "request"),
        (b"{", "JSON"),
        (b'{"inputs":[{"name":"\xff"}]}', "JSON"),
        (b"{}", "inputs"),
        ({"inputs": []}, "inputs"),
        ({"inputs": {}}, "inputs"),
        ({"inputs": [1]}, "inputs[0]"),
        (body(name=...), "name"),
        (body(shape=...), "shape"),
        (body(datatype=...), "datatype"),
        (body(data=...), "inputs[0].data"),
        (body(name=7), "inputs[0].name"),
        (body(datatype="FLOAT"), "inputs[0].datatype"),
        (body(shape="-1"), "inputs[0].shape"),
        (body(shape=[-1, 4]), "inputs[0].shape"),
        (body(shape=[1.5, 4]), "inputs[0].shape"),
        (body(shape=[2**62, 4]), "inputs[0].data"),
        (body(shape=[2**64, 4]), "inputs[0].shape"),
        (body(data=None), "inputs[0].data"),
        (body(data="abc"), "inputs[0].data"),
        (body(data=[1, 2, 3]), "inputs[0].data"),
        (body(data=[1, 2, 3, 4, 5]), "inputs[0].data"),
        (body(data=[1, 2, 3, "4"]), "inputs[0].data"),
        (body(data=[[1, 2], [3, 4]]), "inputs[0].data"),
        (body(data=[[1, 2, 3], [4]]), "inputs[0].data"),
        (body(data=[1, 2, 3, 1e39]), "inputs[0].data"),
        (json.dumps(body(data=[1, 2, 3, float("nan")])).encode(), "inputs[0].data"),
        (json.dumps(body(data=[1, 2, 3, float("inf")])).encode(), "inputs[0].data"),
        (json.dumps(body()).replace("3,", "1e999,").encode(), "inputs[0].data"),
        ({"inputs": [GOOD, GOOD]}, "inputs[1].name"),
        (body() | {"outputs": [{"name": "nonsense"}]}, "outputs"),
        (body() | {"outputs": ["y"]}, "outputs[0]"),
        (body() | {"id": 7}, "id"),
        (body() | {"parameters": {"timeout": "soon"}}, "parameters.timeout"),
        (body() | {"parameters": {"binary_data_output": "yes"}}, "parameters.binary_data_output"),
        (body(parameters={"binary_data_size": 16}, data=...), "inputs[0].parameters.binary_data_size"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_requests_name_the_field(daemon: Daemon, given: Any, field: str) -> None:
    status, answer = infer(daemon, given)
    assert (status, field in answer["error"]) == (400, True), answer
    assert infer(daemon, body())[0] == 200


@pytest.mark.parametrize(
    ("data", "shape"), [([1, 2, 3, 4], [1, 4]), ([[1, 2, 3, 4]], [1, 4]), ([[1, 2, 3, 4], [5, 6, 7, 8]], [2, 4]), (list(range(8)), [2, 4])]
)
def test_flat_and_nested_data(daemon: Daemon, data: Any, shape: list[int]) -> None:
    status, answer = infer(daemon, body(data=data, shape=shape))
    assert status == 200
    assert answer["outputs"] == [{"name": "y", "datatype": "FP32", "shape": shape, "data": np.ravel(data).tolist()}]


def test_unknown_keys_and_null_options_are_passed_over(daemon: Daemon) -> None:
    given = body() | {"id": None, "outputs": None, "parameters": None, "mystery": {"deep": [1]}}
    assert infer(daemon, given)[0] == 200


def test_a_wrong_neighbour_hurts_nobody(daemon: Daemon) -> None:
    """Texts whose shape is a lie, bodies that are cut, and indices out of bounds, beside good ones, all at once."""
    bad = [
        ("strid", {"inputs": [{"name": "x", "shape": [59], "datatype": "BYTES", "data": ["one"]}]}),
        ("gather10", {"inputs": [{"name": "i", "shape": [1], "datatype": "INT64", "data": [99]}]}),
        ("ident", body(data=[1] * 18, shape=[1, 16])),
    ]
    good: list[tuple[str, Any, Any]] = [
        ("strid", {"inputs": [{"name": "x", "shape": [2], "datatype": "BYTES", "data": ["two", "three"]}]}, ["two", "three"]),
        ("gather10", {"inputs": [{"name": "i", "shape": [1], "datatype": "INT64", "data": [-1]}]}, [90]),
        ("ident", body(), [1, 2, 3, 4]),
    ]
    with ThreadPoolExecutor(24) as threads:
        refused = [threads.submit(infer, daemon, given, None, model) for model, given in bad * 8]
        served = [(expected, threads.submit(infer, daemon, given, None, model)) for model, given, expected in good * 8]
        assert {answer.result()[0] for answer in refused} == {400}
        for expected, answer in served:
            status, result = answer.result()
            assert status == 200
            assert result["outputs"][0]["data"] == expected


# ── binary data that is wrong ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def binary(data: bytes, size: int | None = None, length: int | None = None, **changed: Any) -> tuple[bytes, dict[str, str]]:
    given = body(data=..., parameters={"binary_data_size": len(data) if size is None else size}, **changed)
    text = json.dumps(given).encode()
    return text + data, {"inference-header-content-length": str(len(text) if length is None else length)}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (binary(bytes(15)), "binary_data_size"),
        (binary(bytes(16), size=17), "binary_data_size"),
        (binary(bytes(16), size=12), "binary_data_size"),
        (binary(bytes(16), size=-1), "binary_data_size"),
        (binary(bytes(16), length=10_000), "Inference-Header-Content-Length"),
        (binary(bytes(16), length=20), "JSON"),
        (binary(bytes(16), shape=[2, 4]), "binary_data_size"),
        ((json.dumps(body()).encode(), {"inference-header-content-length": "x"}), "inference-header-content-length"),
        (binary(b"\x05\0\0\0abc", name="x", datatype="BYTES", shape=[1]), "inputs[0].data"),
        (binary(b"\x01\0\0\0a" * 2, datatype="BYTES", shape=[1]), "inputs[0].data"),
        (binary(b"\x02\x01", datatype="BOOL", shape=[2]), "inputs[0].data"),
    ],
    ids=range(11),
)
def test_malformed_binary_data_names_the_field(daemon: Daemon, given: tuple[bytes, dict[str, str]], word: str) -> None:
    status, answer = infer(daemon, *given)
    assert (status, word in answer["error"]) == (400, True), answer
    assert infer(daemon, *binary(np.arange(4, dtype=np.float32).tobytes()))[0] == 200


def test_lone_surrogates_are_refused(daemon: Daemon) -> None:
    given = b'{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["\\udcff"]}]}'
    status, answer = infer(daemon, given, model="strid")
    assert (status, "inputs[0].data" in answer["error"]) == (400, True), answer


# ── compression ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

TEXT = json.dumps(body()).encode()


@pytest.mark.parametrize(
    ("encoding", "given", "status"),
    [
        ("gzip", gzip.compress(TEXT), 200),
        ("GZIP", gzip.compress(TEXT), 200),
        ("deflate", zlib.compress(TEXT), 200),
        ("identity", TEXT, 200),
        ("gzip", gzip.compress(TEXT[:20]) + gzip.compress(TEXT[20:]), 200),
        ("gzip", TEXT, 400),
        ("gzip", gzip.compress(TEXT)[:-9], 400),
        ("gzip", b"", 400),
        ("br", TEXT, 415),
        ("x", TEXT, 415),
        ("gzip", gzip.compress(bytes(MAX_BODY + 1)), 413),
    ],
    ids=range(11),
)
def test_compressed_requests(daemon: Daemon, encoding: str, given: bytes, status: int) -> None:
    assert infer(daemon, given, {"content-encoding": encoding})[0] == status
    assert infer(daemon, body())[0] == 200


def test_the_header_length_is_that_of_the_inflated_json(daemon: Daemon) -> None:
    whole, headers = binary(np.arange(4, dtype=np.float32).tobytes())
    status, answer = infer(daemon, gzip.compress(whole), headers | {"content-encoding": "gzip"})
    assert (status, answer["outputs"][0]["data"]) == (200, [0, 1, 2, 3])


# ── size ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def padded(size: int) -> bytes:
    return TEXT + b" " * (size - len(TEXT))


@pytest.mark.parametrize(("size", "status"), [(MAX_BODY - 1, 200), (MAX_BODY, 200), (MAX_BODY + 1, 413)])
def test_the_limit_is_exact(daemon: Daemon, size: int, status: int) -> None:
    assert infer(daemon, padded(size))[0] == status


def test_a_body_is_refused_by_its_declared_length(daemon: Daemon) -> None:
    """Ten gigabytes that never come: the answer comes at once."""
    with socket.create_connection((daemon.host, daemon.port), timeout=30) as sock:
        sock.sendall(b"POST /v2/models/ident/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 10000000000\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_is_counted_as_it_comes(daemon: Daemon) -> None:
    with socket.create_connection((daemon.host, daemon.port), timeout=30) as sock:
        sock.sendall(b"POST /v2/models/ident/infer HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        sock.sendall(b"%x\r\n" % (MAX_BODY + 1))
        assert sock.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_breaks_off(daemon: Daemon) -> None:
    with socket.create_connection((daemon.host, daemon.port), timeout=30) as sock:
        sock.sendall(b"POST /v2/models/ident/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
    assert infer(daemon, body())[0] == 200
