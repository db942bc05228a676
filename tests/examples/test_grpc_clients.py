"""The scripts that show gRPC, against a real daemon."""

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


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_tritonclient(daemon: Daemon) -> None:
    assert run("tritonclient_grpc.py", daemon.grpc, "demo-model").startswith("output [[")


def test_snoozeml(daemon: Daemon) -> None:
    assert run("snoozeml_grpc.py", daemon.url, daemon.grpc, "demo-model", "input").startswith("output [[")
