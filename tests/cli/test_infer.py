"""`wakeful infer`: calls that are made, and calls that are printed and then made by others."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_client_verbs import UTF8, ask, data_of
from tests.daemon import Daemon, running
from wakeful.cli import infer_inputs
from wakeful.cli.client import Failure
from wakeful.cli.infer import as_curl, described
from wakeful.cli.status import NO_MODEL, WRONG_USE

TWO = [{"name": "ids", "datatype": "INT64", "shape": [-1, -1]}, {"name": "words", "datatype": "BYTES", "shape": [-1]}]
KEY = "an-admin-key-of-24-chars"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("infer"), "--demo", "--no-grpc") as daemon:
        yield daemon


def test_zeros_and_random(daemon: Daemon) -> None:
    done = ask(daemon, "infer", "demo-model", "--rows", "3")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "in   input FP32 [3, 4]  0 0 0 0 0 0 0 0 ... (12 values)"
    assert done.stdout.splitlines()[1].startswith("out  output FP32 [3, 3]  ")
    assert "it slept before" in done.stdout
    first, again, other = (data_of(ask(daemon, "infer", "digits", "--json", "random", f"--seed={seed}"))["answer"]["outputs"] for seed in (1, 1, 2))
    assert first == again != other


def test_values_of_a_file_of_stdin_and_as_they_are(daemon: Daemon, tmp_path: Path) -> None:
    right = daemon.infer("demo-model", "input", [1, 2, 3, 4], [1, 4])[1]["outputs"]
    forms = (
        [[1, 2, 3, 4]], {"input": [[1, 2, 3, 4]]}, {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]},
    )
    for form in forms:
        file = tmp_path / "input.json"
        file.write_text(json.dumps(form), encoding="utf-8")
        assert data_of(ask(daemon, "infer", "demo-model", str(file), "--json"))["answer"]["outputs"] == right
        assert data_of(ask(daemon, "infer", "demo-model", json.dumps(form), "--json"))["answer"]["outputs"] == right
    command = [sys.executable, "-m", "wakeful", "infer", "demo-model", "-", "--url", daemon.url]
    done = subprocess.run(command, input="[[1, 2, 3, 4]]", capture_output=True, text=True, check=True, timeout=60, env=os.environ | UTF8)
    assert "in   input FP32 [1, 4]  1 2 3 4\n" in done.stdout


def test_what_cannot_be_called(daemon: Daemon, tmp_path: Path) -> None:
    assert ask(daemon, "infer", "digit").returncode == NO_MODEL
    assert "zeros, random" in ask(daemon, "infer", "digits", "nowhere.json").stderr
    (tmp_path / "wrong.json").write_text("[[1, 2, 3]]", encoding="utf-8")
    done = ask(daemon, "infer", "demo-model", str(tmp_path / "wrong.json"))
    assert done.returncode == WRONG_USE
    assert "error: input: " in done.stderr or "shape" in done.stderr
    assert ask(daemon, "infer", "demo-model", "--rows", "0").returncode == WRONG_USE


def test_the_printed_calls_answer(tmp_path: Path) -> None:
    with running(tmp_path, "--demo", "--no-grpc", "--api-key", f"admin:{KEY}") as daemon:
        key = {"WAKEFUL_API_KEY": KEY}
        right = data_of(ask(daemon, "infer", "digits", "random", "--json", **key))["answer"]["outputs"]
        curl = ask(daemon, "infer", "digits", "random", "--curl", **key).stdout
        assert KEY not in curl
        answer = subprocess.run(["bash", "-c", curl], capture_output=True, check=True, timeout=60, env=os.environ | key).stdout
        assert json.loads(answer)["outputs"] == right
        program = ask(daemon, "infer", "digits", "random", "--python", **key).stdout
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60, env=os.environ | key)
        assert done.stdout.splitlines()[0] == f"label INT64 [1] {right[0]['data']}"


def test_made_up_values_fit_their_types() -> None:
    ids, words = infer_inputs.made_up(TWO, "random", 2, 3, 0)
    assert (ids["shape"], len(ids["data"]), words["shape"]) == ([2, 3], 6, [2])
    assert all(isinstance(value, int) for value in ids["data"])
    assert all(isinstance(value, str) for value in words["data"])
    assert infer_inputs.made_up(TWO, "zeros", 1, 1, 0)[1]["data"] == [""]
    [flags] = infer_inputs.made_up([{"name": "f", "datatype": "BOOL", "shape": [4]}], "zeros", 1, 1, 0)
    assert flags["data"] == [False] * 4
    with pytest.raises(Failure, match="fewer rows"):
        infer_inputs.made_up(TWO, "zeros", 100_000, 100_000, 0)


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    for text, words in (
        ("[1]", "has 2 inputs"), ('{"idz": [1]}', "no input idz"), ('{"ids": [[1, 2], [3]]}', "equally long"), ("{", "x.json: "),
        ("[" * 100_000, "x.json: "),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(Failure, match=words):
            infer_inputs.read(str(file), TWO)
    file.write_text('{"ids": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "words": "red"}', encoding="utf-8")
    ids, words = infer_inputs.read(str(file), TWO)["inputs"]
    assert (ids["shape"], ids["data"]) == ([2, 2, 2], [1, 2, 3, 4, 5, 6, 7, 8])
    assert (words["shape"], words["data"]) == ([1], ["red"])


def test_what_is_shown_of_a_tensor() -> None:
    assert described({"name": "a", "datatype": "FP32", "shape": [2, 2], "data": [[0.123456789, 1.0], [2.0, 3.0]]}, 3) == (
        "a FP32 [2, 2]  0.123457 1 2 ... (4 values)"
    )
    assert described({"name": "b", "datatype": "BYTES", "shape": [1], "data": ["x\x1b y"]}, 3) == 'b BYTES [1]  "x\\u001b y"'
    assert "'\"'\"'" in as_curl("http://x", {"inputs": "it's"})
