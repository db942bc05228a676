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
from tests.e2e.asking import JSON_LENGTH, Answer, Question, ask, ask_together, oip, tensor

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
        (body(shape=[1, 16], data=[1] * 18), "inputs[0].data"),
        (body(shape=[59], datatype="BYTES", data=["one"]), "inputs[0].data"),
        (body(data=[1, 2, 3, "4"]), "inputs[0].data"),
        (body(data=[[1, 2], [3, 4]]), "inputs[0].data"),
        (body(data=[[1, 2, 3], [4]]), "inputs[0].data"),
        (body(data=[1, 2, 3, 1e39]), "inputs[0].data"),
        ({"inputs": [GOOD, GOOD]}, "inputs[1].name"),
        ({"inputs": [GOOD, GOOD | {"name": "z"}]}, "'z'"),
        (body(name="z"), "'z'"),
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
    """C37"""
    status, answer = infer(daemon, given)
    assert (status, field in answer["error"]) == (400, True), answer
    assert infer(daemon, body())[0] == 200


def test_a_required_input_that_is_missing_is_named(daemon: Daemon) -> None:
    """C37"""
    status, answer = infer(daemon, body(name="a", shape=[1, 2], data=[1, 2]), model="two_inputs")
    assert (status, "'b'" in answer["error"]) == (400, True), answer


def test_of_a_key_that_is_given_twice_the_last_one_counts(daemon: Daemon) -> None:
    """C37 asks for 400. JSON leaves it open; here it is as with nearly every parser, `json.loads` of the clients' side among them, so that client
    and server mean the same, and what counts is checked like any other."""
    given = json.dumps(body()).encode()
    status, answer = infer(daemon, given.replace(b'"shape"', b'"shape": [9], "shape"'))
    assert (status, answer["outputs"][0]["shape"]) == (200, [1, 4])
    assert infer(daemon, given.replace(b'"datatype"', b'"shape": [9], "datatype"'))[0] == 400


@pytest.mark.parametrize(
    ("data", "shape"), [([1, 2, 3, 4], [1, 4]), ([[1, 2, 3, 4]], [1, 4]), ([[1, 2, 3, 4], [5, 6, 7, 8]], [2, 4]), (list(range(8)), [2, 4])]
)
def test_flat_and_nested_data(daemon: Daemon, data: Any, shape: list[int]) -> None:
    """C37"""
    status, answer = infer(daemon, body(data=data, shape=shape))
    assert status == 200
    assert answer["outputs"] == [{"name": "y", "datatype": "FP32", "shape": shape, "data": np.ravel(data).tolist()}]


def test_unknown_keys_and_null_options_are_passed_over(daemon: Daemon) -> None:
    given = body() | {"id": None, "outputs": None, "parameters": None, "mystery": {"deep": [1]}}
    assert infer(daemon, given)[0] == 200


def test_a_wrong_neighbour_hurts_nobody(daemon: Daemon) -> None:
    """C05, C37: texts whose shape is a lie, bodies that are cut, and indices out of bounds, beside good ones, all at once."""
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


def test_a_wrong_text_beside_right_ones_of_a_batch(daemon: Daemon) -> None:
    """C37, C39: those that are right share runs, each gets its own texts, and a false shape has never been near them."""
    wrong = oip("strid", tensor("x", [59], ["one"], "BYTES"))
    texts = [[f"{number}", "€" * number, ""] for number in range(30)]
    asked = [oip("strid", tensor("x", [3], text, "BYTES")) for text in texts]
    runs = daemon.metric("wakeful_batch_rows_count", model="strid")
    answers = ask_together(daemon, [question for right in asked for question in (right, wrong)])
    assert [answer.output() for answer in answers[::2]] == texts
    assert {answer.status for answer in answers[1::2]} == {400}
    assert daemon.metric("wakeful_batch_rows_count", model="strid") - runs <= len(texts)


# ── numbers that JSON does not have ──────────────────────────────────────────────────────────────────────────────────────────────────────


def strictly(answer: Answer) -> Any:
    """The JSON of an answer, read by a parser that takes nothing else."""
    assert answer.status == 200, answer.body

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    return json.loads(answer.body[: answer.json_length], parse_constant=refuse)


def test_what_is_no_number_is_null_and_a_neighbours_numbers_are_not_touched(daemon: Daemon) -> None:
    """C35: as text null, one for each element; as bytes every bit; and nobody else of the batch notices."""
    odd, even = tensor("x", [3], [1, 0, -1]), tensor("x", [3], [1, 1, 1])
    as_bytes = {"parameters": {"binary_data_output": True}}
    questions = [oip("log", odd), oip("log", even), oip("log", odd, **as_bytes), oip("log", even, **as_bytes)] * 8
    expected = {0: [0.0, None, None], 1: [0.0, 0.0, 0.0]}
    for number, answer in enumerate(ask_together(daemon, questions)):
        (output,) = strictly(answer)["outputs"]
        assert output["shape"] == [3]
        if number % 4 in expected:
            assert output["data"] == expected[number % 4]
            continue
        values = np.frombuffer(answer.body[answer.json_length :], "<f4")
        exact = [0, -np.inf, np.nan] if number % 4 == 2 else [0, 0, 0]
        assert np.array_equal(values, np.array(exact, np.float32), equal_nan=True)


@pytest.mark.parametrize(("datatype", "numpy"), [("FP16", "<f2"), ("FP32", "<f4"), ("FP64", "<f8")])
def test_what_is_no_number_goes_in_as_bytes_and_comes_out_as_asked(daemon: Daemon, datatype: str, numpy: str) -> None:
    """C35"""
    values = np.array([[np.nan, np.inf], [-np.inf, 1.5]], numpy)
    for wanted in (True, False):
        text = json.dumps({
            "inputs": [{"name": "x", "shape": [2, 2], "datatype": datatype, "parameters": {"binary_data_size": values.nbytes}}],
            "parameters": {"binary_data_output": wanted},
        }).encode()
        question = Question(f"/v2/models/types/{datatype}/infer", text + values.tobytes(), {JSON_LENGTH: str(len(text))})
        answer = ask(daemon, question)
        (output,) = strictly(answer)["outputs"]
        if wanted:
            assert answer.body[answer.json_length :] == values.tobytes()
        else:
            assert output["data"] == [None, None, None, 1.5]


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", '"NaN"', "null"])
def test_what_is_no_number_is_not_taken_as_text(daemon: Daemon, token: str) -> None:
    """C35"""
    status, answer = infer(daemon, json.dumps(body()).replace("3,", f"{token},").encode())
    assert (status, "inputs[0].data" in answer["error"]) == (400, True), answer


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
    """C39"""
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
    """C40"""
    assert infer(daemon, given, {"content-encoding": encoding})[0] == status
    assert infer(daemon, body())[0] == 200


def test_the_header_length_is_that_of_the_inflated_json(daemon: Daemon) -> None:
    """C40"""
    whole, headers = binary(np.arange(4, dtype=np.float32).tobytes())
    status, answer = infer(daemon, gzip.compress(whole), headers | {"content-encoding": "gzip"})
    assert (status, answer["outputs"][0]["data"]) == (200, [0, 1, 2, 3])


# ── size ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_body_is_refused_by_its_declared_length(daemon: Daemon) -> None:
    """C41: ten gigabytes that never come: the answer comes at once."""
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
