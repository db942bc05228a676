"""What large requests hold is given back with their answers, however they end: no cycle keeps it until the garbage collector comes by.

The collector looks rarely (`app.GC_THRESHOLD`), and to it a body of megabytes is one object.
"""

import gzip
import json
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running
from tests.e2e.asking import Answer, Question, ask, binary, declared, oip, tensor

pytestmark = pytest.mark.alone

MODELS = """
[server]
max_body = "3MiB"

[defaults]
idle_timeout_secs = 0
prepare = "off"
max_replicas = 1

[[models]]
id = "parted"
path = "ident.onnx"
max_batch_size = 20000
batch_policy = "timer"

[[models]]
id = "whole"
path = "ident.onnx"
batching = "off"

[[models]]
id = "gather10"
path = "gather10.onnx"
batching = "off"
"""
ROWS = 131_072
SIZE = 16 * ROWS
"""Bytes of a [ROWS,4] FP32, 2 MiB."""
TIMES = 15
ROOM = 15 * 2**20
"""Half of what would be there if nothing were given back."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("bodies")
    onnx_models.ident(directory / "ident.onnx")
    onnx_models.gather10(directory / "gather10.onnx")
    (directory / "models.toml").write_text(MODELS)
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        for model in ("parted", "whole", "gather10"):
            daemon.wake(model)
        yield daemon


def x(model: str, columns: int = 4, **more: object) -> Question:
    return binary(model, [declared("x", "FP32", ROWS, columns)], [bytes(SIZE)], **more)


def compressed(question: Question, body: bytes) -> Question:
    return question._replace(body=gzip.compress(body, 1), headers={**question.headers, "content-encoding": "gzip"})


def numbers(model: str, count: int) -> Question:
    return oip(model, tensor("x", [1, 4], [0.12345678901234] * count))


KINDS = {
    "in parts": (x("parted"), 200),
    "in one run": (x("whole"), 200),
    "compressed": (compressed(x("whole"), x("whole").body), 200),
    "refused by the model": (oip("gather10", tensor("i", [ROWS * 4], [99] * ROWS * 4, "INT64")), 400),
    "unknown output": (x("whole", outputs=[{"name": "nope"}]), 400),
    "another shape than the model's": (binary("whole", [declared("x", "FP32", ROWS // 2, 8)], [bytes(SIZE)]), 400),
    "another size than the shape's": (x("whole", columns=5), 400),
    "no model": (x("none"), 404),
    "no JSON": (Question("/v2/models/whole/infer", b"{" + b" " * SIZE + b"x"), 400),
    "too many numbers": (numbers("whole", SIZE // 18), 400),
    "no JSON of SnoozeML": (Question("/v1/models/whole/infer", b"[" + b"1," * (SIZE // 2)), 400),
    "broken off compression": (compressed(x("whole"), x("whole").body)._replace(body=gzip.compress(bytes(SIZE), 0)[:-9]), 400),
    "too large when inflated": (compressed(x("whole"), bytes(2 * SIZE)), 413),
    "no time": (x("parted", parameters={"timeout": 1, "binary_data_output": True}), 504),
}


def resident(daemon: Daemon) -> float:
    return daemon.metric("process_resident_memory_bytes")


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_large_request_held_is_given_back(daemon: Daemon, kind: str) -> None:
    question, status = KINDS[kind]
    answers: list[Answer] = [ask(daemon, question) for _ in range(5)]
    before = resident(daemon)
    answers += [ask(daemon, question) for _ in range(TIMES)]
    assert resident(daemon) < before + ROOM
    assert {answer.status for answer in answers} == {status}, answers[0]


def test_what_comes_of_a_body_that_breaks_off_is_given_back(daemon: Daemon) -> None:
    head = json.dumps({"inputs": [declared("x", "FP32", ROWS, 4)]}).encode()
    beginning = b"POST /v2/models/whole/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b%b" % (SIZE + len(head), head, bytes(SIZE - 1))
    levels = []
    for _ in range(2):
        for _ in range(TIMES):
            with closing(socket.create_connection((daemon.host, daemon.port), timeout=30)) as sock:
                sock.sendall(beginning)
        levels.append(resident(daemon))
    assert levels[1] < levels[0] + ROOM
