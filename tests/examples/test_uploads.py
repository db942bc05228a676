"""The scripts that bring a model, as they stand."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("examples")
    (directory / "models").mkdir()
    with running(directory, "--models-dir", str(directory / "models"), "--no-grpc") as daemon:
        yield daemon


def printed(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_upload(daemon: Daemon, tmp_path: Path) -> None:
    file = onnx_models.ident(tmp_path / "ident.onnx")
    settings = ("model_id=mine", "description=with spaces; and=more", "max_batch_size=16")
    shown = json.loads(printed(str(EXAMPLES / "upload.sh"), daemon.url, str(file), *settings))
    assert (shown["id"], shown["description"], shown["max_batch_size"]) == ("mine", "with spaces; and=more", 16)
    assert daemon.infer("mine", "x", [1, 2, 3, 4], [1, 4])[0] == 200


def test_deploy_with_the_sdk(daemon: Daemon) -> None:
    assert printed(sys.executable, str(EXAMPLES / "snoozeml_deploy.py"), daemon.url) == "iris 32 [0, 0]\n"
