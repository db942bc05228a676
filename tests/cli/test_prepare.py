"""`wakeful prepare`: copies that a daemon then uses, made without one; what each has won, and that it answers the same."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import onnx_models
from tests.cli.test_client_verbs import wakeful
from tests.daemon import running
from wakeful.cli.looks import Looks
from wakeful.cli.prepare import line
from wakeful.models.preparing import Opened
from wakeful.runtime.messages import Compared

WIDTH = 512
LINE = re.compile(r"heavy +load .+ → .+, private .+ → .+iB, outputs equal \(max \S+\), 64 MiB")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    directory = tmp_path / "models"
    directory.mkdir()
    onnx_models.heavy(directory / "heavy.onnx", 32)
    onnx_models.ident(directory / "small.onnx")
    return directory


def prepare(models: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With the cache that a daemon in `daemon` has."""
    return wakeful("prepare", *arguments, "--models-dir", str(models), "--cache-dir", str(models.parent / "daemon" / "cache"))


def told(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    answer = json.loads(done.stdout)
    assert (answer["wakeful"], answer["kind"]) == (1, "prepare")
    return list(answer["data"]["models"])


def test_a_daemon_uses_the_copy_at_its_first_load(models: Path) -> None:
    done = prepare(models, "--all")
    assert done.returncode == 0, done.stderr
    (said,) = done.stdout.splitlines()  # none of a model that loads in a few milliseconds anyway
    assert LINE.fullmatch(said), said
    with running(models.parent / "daemon", "--models-dir", str(models), "--no-grpc") as daemon:
        status, _ = daemon.infer("heavy", "x", [0.5] * WIDTH, [1, WIDTH])
        assert status == 200
        assert daemon.wait_event("load", "heavy")["figures"]["how"] == "prepared copy"


def test_a_copy_is_made_kept_compared_and_removed(models: Path) -> None:
    (made,) = told(prepare(models, "heavy", "--json"))
    assert (made["model"], made["result"], made["equal"]) == ("heavy", "made", True)
    assert made["inputs"] > 0
    assert made["private_bytes"]["prepared"] < made["private_bytes"]["shipped"] / 2
    assert LINE.match(prepare(models, "heavy").stdout)
    (kept,) = told(prepare(models, "hea*", "--verify", "--json"))
    assert (kept["result"], kept["bytes"]) == ("compared", made["bytes"])
    assert "copy removed" in prepare(models, "heavy", "--clean").stdout
    none = prepare(models, "heavy", "--verify")
    assert (none.returncode, none.stdout) == (1, "heavy   no copy: there is none yet\n")


def test_a_copy_that_answers_otherwise_is_removed(models: Path) -> None:
    assert prepare(models, "heavy").returncode == 0
    (weights,) = models.parent.rglob("weights.bin")
    weights.write_bytes(bytes(weights.stat().st_size))  # what is missing would be noticed, and what is wrong is not
    done = prepare(models, "heavy", "--verify")
    assert done.returncode == 1
    assert "outputs differ (max " in done.stdout
    assert "the copy is removed" in done.stdout
    assert not list(models.parent.rglob("weights.bin"))


def test_what_cannot_be_prepared(models: Path) -> None:
    (models / "broken.onnx").write_bytes(b"no model at all" * 100_000)
    (models / "models.toml").write_text('[[models]]\nid = "off"\npath = "small.onnx"\nprepare = "off"\n')
    done = prepare(models, "broken", "off", "heavy")
    assert done.returncode == 1
    first, second, third = done.stdout.splitlines()
    assert first.startswith("broken   no copy: broken.onnx is not a readable ONNX file")
    assert second == 'off      no copy: prepare = "off"'
    assert third.startswith("heavy    load ")


def test_which_models(models: Path) -> None:
    assert prepare(models).stderr == "error: which models?\n  hint: name some, or say --all\n"
    assert prepare(models).returncode == prepare(models, "--all", "heavy").returncode == 2
    unknown = prepare(models, "hevy")
    assert (unknown.returncode, unknown.stderr) == (4, "error: there is no model hevy\n  hint: did you mean heavy?\n")
    error = json.loads(prepare(models, "hevy", "--json").stdout)["error"]
    assert (error["code"], error["exit"]) == ("not_found", 4)
    (models / "models.toml").write_text("[defaults]\nmax_batchsize = 8\n")
    wrong = prepare(models, "heavy")
    assert wrong.returncode == 2
    assert "did you mean `max_batch_size`?" in wrong.stderr


def test_the_line() -> None:
    """A unit is said once where it is the same."""
    shipped, prepared = Opened(0.212, 119 << 20, False), Opened(0.044, 7 << 20, True)
    equal = Compared(True, 0.0, 10, "")
    assert line(shipped, prepared, equal, 98 << 20, Looks(unicode=True)) == "load 212 → 44 ms, private 119 → 7.0 MiB, outputs equal (max 0), 98 MiB"
    slower = line(Opened(2.0, 119 << 20, False), Opened(0.044, 1000, True), Compared(True, None, 0, "no input"), 5, Looks())
    assert slower == "load 2.0 s -> 44 ms, private 119 MiB -> 1000 B, outputs not compared (no input), 5 B"
