"""Bodies at the limit, over it, and other than they say; what they cost the daemon is bounded."""

import gzip
import http.client
import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests import onnx_models
from tests.daemon import Daemon, running
from tests.e2e.asking import BINARY, JSON_LENGTH, Question, ask, tensor

MAX_BODY = 4 * 1024 * 1024
CALLERS = 50
SLACK = 32 * 1024**2
"""Bytes: buffers of the loop, and what the allocator keeps."""
BOMB = gzip.compress(bytes(1 << 26)) * 16
"""A gigabyte of zeros in a megabyte."""
INFER = "/v2/models/identdyn/infer"
GOOD = json.dumps({"inputs": [tensor("x", [1, 4], [1, 2, 3, 4])]}).encode()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    onnx_models.identdyn(directory / "identdyn.onnx")
    return directory


@pytest.fixture(scope="module")
def daemon(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    options = ["--models-dir", str(models), "--no-grpc", "--max-body", str(MAX_BODY)]
    with running(tmp_path_factory.mktemp("daemon"), *options) as daemon:
        assert ask(daemon, Question(INFER, GOOD)).status == 200
        yield daemon


def resident(daemon: Daemon, measure: str = "VmRSS") -> int:
    """Bytes of the daemon itself; with VmHWM the most that there were."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return 1024 * int(status.partition(f"\n{measure}:")[2].split()[0])


BAD = [
    ("bombs", BOMB, {"content-encoding": "gzip"}, 413),
    ("malformed", b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[' + b"1," * (MAX_BODY // 2 - 100), {}, 400),
    ("cut short", gzip.compress(np.random.default_rng(0).bytes(MAX_BODY - 100_000))[:-9], {"content-encoding": "gzip"}, 400),
]


@pytest.mark.parametrize(("body", "headers", "status"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
@pytest.mark.alone
def test_many_bad_bodies_take_no_more_memory_than_good_ones(daemon: Daemon, body: bytes, headers: dict[str, str], status: int) -> None:
    """C40: what the callers have sent, and twice the limit for each of the few threads that inflate or parse. What has been refused is gone."""
    Path(f"/proc/{daemon.process.pid}/clear_refs").write_text("5")  # the most so far is forgotten
    before = resident(daemon)
    with ThreadPoolExecutor(CALLERS) as callers:
        assert {answer.status for answer in callers.map(lambda _: ask(daemon, Question(INFER, body, headers)), range(CALLERS))} == {status}
    threads = min(32, (os.cpu_count() or 1) + 4)  # of an executor by default
    assert resident(daemon, "VmHWM") - before < CALLERS * len(body) + 2 * threads * MAX_BODY + SLACK
    assert ask(daemon, Question(INFER, GOOD)).output() == [1, 2, 3, 4]


def test_an_answer_is_what_its_label_says(daemon: Daemon) -> None:
    """C40: answers are not compressed, whatever the client would take (decision 8), and do not claim to be."""
    x = np.arange(8, dtype="<f4")
    text = json.dumps({
        "inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}],
        "parameters": {"binary_data_output": True},
    }).encode()
    headers = {"accept-encoding": "gzip, deflate", "content-encoding": "gzip", JSON_LENGTH: str(len(text)), "content-type": BINARY}
    with closing(http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)) as connection:
        connection.request("POST", INFER, gzip.compress(text + x.tobytes()), headers)
        answer = connection.getresponse()
        body, length = answer.read(), int(answer.headers[JSON_LENGTH])
    assert (answer.status, answer.headers["content-encoding"], answer.headers["content-type"]) == (200, None, BINARY)
    assert json.loads(body[:length])["outputs"][0]["parameters"] == {"binary_data_size": x.nbytes}
    assert body[length:] == x.tobytes()


@pytest.mark.parametrize("encoding", ["br", "x", "gzip, gzip", "gzip;q=1"])
def test_an_encoding_that_is_not_known_is_told_those_that_are(daemon: Daemon, encoding: str) -> None:
    """C40"""
    with closing(http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)) as connection:
        connection.request("POST", INFER, gzip.compress(GOOD), {"content-encoding": encoding})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["accept-encoding"]) == (415, "gzip, deflate")


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("size", "status"), [(MAX_BODY - 1, 200), (MAX_BODY, 200), (MAX_BODY + 1, 413)])
def test_the_limit_is_exact_however_the_body_is_sent(daemon: Daemon, size: int, status: int, compressed: bool, chunked: bool) -> None:
    """C41: what counts is the inflated body."""
    body = GOOD + b" " * (size - len(GOOD))
    sent = gzip.compress(body) if compressed else body
    headers = {"content-encoding": "gzip"} if compressed else {}
    with closing(http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)) as connection:
        connection.request("POST", INFER, iter([sent[:100], sent[100:]]) if chunked else sent, headers, encode_chunked=chunked)
        assert connection.getresponse().status == status


def test_a_length_that_lies(daemon: Daemon) -> None:
    """C41: what is said to be longer than it is never becomes a request; what is said to be shorter is cut there, and its rest is no request."""
    with socket.create_connection((daemon.host, daemon.port), timeout=60) as sock:
        sock.sendall(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (INFER.encode(), len(GOOD) + 1, GOOD))
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(100) == b""
    with socket.create_connection((daemon.host, daemon.port), timeout=60) as sock:
        sock.sendall(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (INFER.encode(), len(GOOD) - 10, GOOD))
        with sock.makefile("rb") as file:
            answers = file.read()  # the daemon closes: nobody knows where the next request would begin
    assert answers.count(b"HTTP/1.1 ") == answers.count(b"HTTP/1.1 400 ") == 2
    assert daemon.metric("wakeful_queue_requests", model="identdyn") == 0
    assert ask(daemon, Question(INFER, GOOD)).output() == [1, 2, 3, 4]


def test_by_default_pictures_fit_both_ways(models: Path, tmp_path: Path) -> None:
    """C41: 640x640x3 FP32, as bytes (5 MB) and as text (as much), in and out."""
    x = np.random.default_rng(0).integers(0, 256, (1, 640 * 640 * 3)).astype(np.float32)
    with running(tmp_path, "--models-dir", str(models), "--no-grpc") as daemon:
        answer = ask(daemon, Question(INFER, json.dumps({"inputs": [tensor("x", x.shape, x[0].tolist())]}).encode()))
        assert np.array_equal(np.array(answer.output(), np.float32), x[0])
        text = json.dumps({
            "inputs": [{"name": "x", "shape": x.shape, "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}],
            "parameters": {"binary_data_output": True},
        }).encode()
        answer = ask(daemon, Question(INFER, text + x.tobytes(), {JSON_LENGTH: str(len(text))}))
        assert answer.body[answer.json_length :] == x.tobytes()
