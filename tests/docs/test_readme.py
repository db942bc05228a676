"""The README's blocks do what it says, and so does what the page of clients begins with: they are run as they stand, but for the port and the
waiting."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import numpy_helper, parser

from tests.daemon import Daemon, running
from wakeful.cli.main import main
from wakeful.cluster.dialects import wakeful
from wakeful.config.kinds import KINDS

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
CLIENTS = (ROOT / "docs" / "clients.md").read_text("utf-8")
CURL = BLOCK.findall(CLIENTS.partition("## curl\n")[2].partition("\n## ")[0])
PYTHON = BLOCK.findall(CLIENTS.partition("## tritonclient over HTTP\n")[2].partition("\n## ")[0])
ADDRESS = "127.0.0.1:8080"
FRAUD = """<ir_version: 9, opset_import: ["": 17]>
fraud (float[N,4] features) => (float[N,1] score) { sum = MatMul(features, weights)  score = Sigmoid(sum) }"""


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def commands(program: str) -> list[str]:
    return [line for text in blocks("sh") for line in text.splitlines() if line.split()[0] == program]


def command(verb: str) -> list[str]:
    """Of `wakeful`, the only one with this verb: its arguments."""
    (found,) = (line.split()[2:] for line in commands("wakeful") if line.split()[1] == verb)
    return found


def masked(line: str) -> str:
    """A line of events without its time, number and figures."""
    return re.sub(r"[\d.]+ (?:us|ms|s|B|[KM]iB)\b", "#", re.sub(r"^\S+ +\d+ ", "", line))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the README tells its reader to make."""
    directory = tmp_path_factory.mktemp("readme") / "models"
    directory.mkdir()
    model = parser.parse_model(FRAUD)
    model.graph.initializer.append(numpy_helper.from_array(np.array([[0.5], [-0.25], [0.125], [1]], np.float32), "weights"))
    onnx.save(model, directory / "fraud.onnx")
    (settings,) = blocks("toml")
    (directory / "models.toml").write_text(settings, encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def daemon(models: Path) -> Iterator[Daemon]:
    assert command("serve") == ["--models-dir", models.name]
    with running(models.parent, "--models-dir", str(models), "--demo") as daemon:
        yield daemon


def test_versions_are_those_that_the_tests_run_with() -> None:
    pages = CLIENTS + (ROOT / "docs" / "models.md").read_text("utf-8")
    rows = re.findall(r"^\|.*\| `([\w-]+)` \| ([\d.]+) \|", pages, re.MULTILINE)
    assert len(rows) >= 13
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line)
    for package, version in rows:
        assert pinned[package] == version


def test_the_two_commands_exist() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert [command.split()[1] for command in commands("make")] == ["serve", "test"]
    assert {"serve", "test"} <= set(targets)


def test_the_settings_are_right(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("check") == ["--models-dir", models.name]
    assert main(["check", "--models-dir", str(models)], 0.0) == 0
    assert "1 model, no error: fraud" in capsys.readouterr().out


@pytest.mark.parametrize("command", [*commands("curl"), *(text.strip() for _, text in CURL)])
def test_curl_lines_answer(daemon: Daemon, command: str) -> None:
    assert ADDRESS in command
    command = command.replace(ADDRESS, f"{daemon.host}:{daemon.port}") + " --fail-with-body"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
    assert '"name":"fraud"' in done.stdout or '"outputs":[{' in done.stdout


def test_the_load_gets_its_answers(daemon: Daemon) -> None:
    url, model, *options = command("bench")
    assert (url, model, options[-2:]) == (f"http://{ADDRESS}", "demo-model", ["--duration", "10"])
    arguments = ["bench", daemon.url, model, *options[:-1], "1"]
    done = subprocess.run([sys.executable, "-m", "wakeful", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_python_block_prints_an_answer(daemon: Daemon) -> None:
    ((_, code),) = PYTHON
    assert ADDRESS in code
    code = code.replace(ADDRESS, f"{daemon.host}:{daemon.port}")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert re.fullmatch(r"\[\[0\.\d+ *\]\n \[0\.\d+ *\]\]\n", done.stdout), done.stdout


def told(daemon: Daemon, verb: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "wakeful", verb, *arguments], env=os.environ | {"WAKEFUL_URL": daemon.url}, capture_output=True, text=True, check=True,
        timeout=60,
    )
    return done.stdout


def test_the_events_are_as_shown(models: Path, tmp_path: Path) -> None:
    """With half a second instead of five minutes."""
    (shown,) = blocks("text")
    expected = [masked(line) for line in shown.splitlines()]
    settings = models / "models.toml"
    assert "idle_timeout_secs = 300" in settings.read_text("utf-8")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "fraud.onnx").write_bytes((models / "fraud.onnx").read_bytes())
    quick = settings.read_text("utf-8").replace("idle_timeout_secs = 300", "idle_timeout_secs = 0.5")
    (tmp_path / "models" / "models.toml").write_text(quick, encoding="utf-8")
    with running(tmp_path, "--models-dir", str(tmp_path / "models"), "--no-grpc") as daemon:
        assert daemon.infer("fraud", "features", [1, 2, 3, 4], [1, 4])[0] == 200
        daemon.wait_event("probe", "fraud")
        daemon.wait_event("unload", "fraud")
        printed = told(daemon, "events", *command("events"))
        assert [masked(line) for line in printed.splitlines() if " prepare " not in line][: len(expected)] == expected
        assert told(daemon, "explain", *command("explain")).startswith("fraud is asleep since ")
        assert "fraud  asleep" in told(daemon, "ps", *command("ps"))


def test_the_manifest_is_right() -> None:
    [block] = blocks("yaml")
    spec = wakeful.model(yaml.safe_load(block))
    assert not spec.errors
    assert spec.bounds.ranged
    assert spec.requirements <= set(KINDS)
