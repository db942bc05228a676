"""The scripts that ask a model, each with its client, against a real daemon."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import Daemon, running

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("examples"), "--demo") as daemon:
        yield daemon


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def python(script: str, *arguments: str) -> str:
    return run(sys.executable, str(EXAMPLES / script), *arguments)


def test_curl(daemon: Daemon) -> None:
    answers = run(str(EXAMPLES / "curl.sh"), daemon.url, "demo-model", "input", "1", "2", "3", "4")
    models, model, answer, last = map(json.loads, answers.splitlines())
    assert [entry["id"] for entry in models] == ["demo-model", "digits"]
    assert model["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}]
    assert answer["outputs"][0]["shape"] == [1, 3]
    assert len(last["events"]) == 1


def test_tritonclient_over_http(daemon: Daemon) -> None:
    assert python("tritonclient_http.py", f"{daemon.host}:{daemon.port}", "demo-model").startswith("output [[")


def test_tritonclient_over_grpc(daemon: Daemon) -> None:
    assert python("tritonclient_grpc.py", daemon.grpc, "demo-model").startswith("output [[")


def test_snoozeml_over_http(daemon: Daemon) -> None:
    output, states = python("snoozeml_http.py", daemon.url, "demo-model", "input").splitlines()
    assert output.startswith("output [[")
    assert "demo-model is ready" in states


def test_snoozeml_over_grpc(daemon: Daemon) -> None:
    assert python("snoozeml_grpc.py", daemon.url, daemon.grpc, "demo-model", "input").startswith("output [[")
