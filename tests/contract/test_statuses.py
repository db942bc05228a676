"""Whose fault it was, and whether to try again: the statuses of docs/errors.md in both dialects, each from a request that deserves it."""

import http.client
import json
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from tests.daemon import Daemon, wait_until
from tests.e2e.asking import Question, ask_together, tensor

DIALECTS = ["v2", "v1"]
ROW = tensor("x", [1, 4], [1, 2, 3, 4])
CALLERS = 50
"""Five times the queue_limit of model `limited`."""


class Told(NamedTuple):
    status: int
    retry_after: str | None
    error: str


def question(dialect: str, model: str, inputs: Any) -> Question:
    return Question(f"/{dialect}/models/{model}/infer", inputs if isinstance(inputs, bytes) else json.dumps({"inputs": inputs}).encode())


def told(daemon: Daemon, path: str, body: bytes | None = None) -> Told:
    with closing(http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)) as connection:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return Told(answer.status, answer.headers["retry-after"], json.loads(answer.read()).get("error", ""))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("model", "inputs", "status", "word"),
    [
        ("nobody", [ROW], 404, "'nobody'"),
        ("ident", [tensor("x", [1, 3], [1, 2, 3])], 400, "[N,4]"),
        ("ident", [tensor("z", [1, 4], [1, 2, 3, 4])], 400, "'z'"),
        ("ident", b"{", 400, "JSON"),
        ("gather10", [tensor("i", [1], [99], "INT64")], 400, "out of data bounds"),
        ("quotient", [tensor("a", [1], [1], "INT64"), tensor("b", [1], [0], "INT64")], 400, "division by zero"),
        ("quotient", [tensor("a", [1], [-(2**63)], "INT64"), tensor("b", [1], [-1], "INT64")], 500, "SIGFPE"),
        ("broken", [ROW], 503, "broken.onnx is not a readable ONNX file"),
        ("hungry", [tensor("size", [1], [2**42], "INT64")], 503, "out of memory"),
        ("hasty", [ROW], 504, "deadline"),
    ],
)
def test_every_fault_has_its_status(daemon: Daemon, dialect: str, model: str, inputs: Any, status: int, word: str) -> None:
    """C43. 500 is a failure of the model's own: here its process is ended by two numbers that fit the signature, and no third try is made."""
    path, body, _ = question(dialect, model, inputs)
    got = told(daemon, path, body)
    assert (got.status, word in got.error) == (status, True), got
    assert (got.retry_after is not None) == (status == 503)
    assert "Traceback" not in got.error
    assert daemon.infer("ident", "x", [1, 2, 3, 4], [1, 4])[0] == 200


@pytest.mark.parametrize("verb", ["load", "unload"])
@pytest.mark.parametrize("where", ["/v2/repository/models", "/v1/models"])
def test_nobody_cannot_be_woken_and_what_is_broken_says_so(daemon: Daemon, where: str, verb: str) -> None:
    """C43"""
    assert told(daemon, f"{where}/nobody/{verb}").status == 404
    if verb == "load":
        got = told(daemon, f"{where}/broken/load")
        assert (got.status, bool(got.retry_after), "broken.onnx" in got.error) == (503, True, True)


def test_a_version_that_there_is_not(daemon: Daemon) -> None:
    """C43"""
    body = json.dumps({"inputs": [ROW]}).encode()
    assert told(daemon, "/v2/models/ident/versions/1/infer", body).status == 200
    assert told(daemon, "/v2/models/ident/versions/2/infer", body).status == 404


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_model_that_sleeps_is_no_fault(daemon: Daemon, dialect: str) -> None:
    """C43"""
    assert told(daemon, "/v1/models/ident/unload").status == 200
    path, body, _ = question(dialect, "ident", [ROW])
    assert told(daemon, path, body).status == 200


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize(("dialect", "protocol", "full"), [("v2", "oip", 429), ("v1", "snooze", 503)])
def test_a_full_queue_refuses_whatever_is_sent(daemon: Daemon, dialect: str, protocol: str, full: int, rows: int) -> None:
    """C43: single rows, batches, and more than fits into one run; what was taken is answered, and each refusal is counted."""

    def counted() -> float:
        return daemon.metric("wakeful_requests_total", model="limited", protocol=protocol, outcome="overloaded")

    wait_until(lambda: daemon.metric("wakeful_queue_requests", model="limited") == 0, "nothing waits")
    x = list(range(4 * rows))
    before = counted()
    answers = ask_together(daemon, [question(dialect, "limited", [tensor("x", [rows, 4], x)])] * CALLERS)
    refused = [answer for answer in answers if answer.status == full]
    assert {answer.status for answer in answers} == {200, full}
    assert all(answer.output() == x for answer in answers if answer.status == 200)
    assert all("queue_limit" in answer.json["error"] for answer in refused)
    assert counted() - before == len(refused)
