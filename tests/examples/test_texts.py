"""The scripts that send texts, as they stand."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import onnx_models, tokenizer_files
from tests.daemon import Daemon, running

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("texts")
    for name, make in (("encoder", onnx_models.token_encoder), ("ranker", onnx_models.cross_encoder)):
        (directory / "models" / name).mkdir(parents=True)
        make(directory / "models" / name / "model.onnx")
        tokenizer_files.words(directory / "models" / name / "tokenizer.json")
    with running(directory, "--models-dir", str(directory / "models"), "--no-grpc") as daemon:
        yield daemon


def printed(script: str, *arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, str(EXAMPLES / script), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_embeddings(daemon: Daemon) -> None:
    assert printed("openai_embeddings.py", daemon.url, "encoder", "the cat", "the cat", "z")[::2] == ["1.00  the cat", "11 tokens"]


def test_reranking(daemon: Daemon) -> None:
    assert printed("rerank.py", daemon.url, "ranker", "cat", "z z", "the dog") == ["0.974  the dog", "0.884  z z"]
