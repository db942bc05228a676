"""What the pages on single jobs say to write is a configuration, and what they say to run runs."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import certificates, onnx_models
from tests.daemon import Daemon, running
from tests.docs.test_readme import BLOCK
from wakeful.cli import bench_options
from wakeful.cli.main import main
from wakeful.cli.parser import Parser

PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("*.md"))
ADDRESS = "http://127.0.0.1:8080"
RUN_ELSEWHERE = {"serve"}
"""Verbs that do not end by themselves; what they are given is held by the tests of serving."""

DEPENDS = {"--sweep", "--assert"}
"""With these, what `wakeful bench` leaves with depends on how fast this machine is just now: such a command line is read and not run."""


def found(language: str) -> list[tuple[str, str]]:
    """Name of the page, and the block, which may stand below a number."""
    texts = ((page.name, re.sub("^   (?! )", "", page.read_text("utf-8"), flags=re.MULTILINE)) for page in PAGES)
    return [(name, block) for name, text in texts for kind, block in BLOCK.findall(text) if kind == language]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("how-to"), "--demo", "--no-grpc") as daemon:
        yield daemon


@pytest.mark.parametrize(("page", "text"), found("toml"))
def test_settings_are_right(page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for path in re.findall(r'^path = "(.+\.onnx)"', text, re.MULTILINE):
        onnx_models.ident(tmp_path / path)
    for variable in re.findall(r'_env = "(\w+)"', text):
        monkeypatch.setenv(variable, "a-long-enough-key-of-" + variable)
    if "tls_cert" in text:
        certificates.issue(tmp_path)
    (tmp_path / "models.toml").write_text(text, "utf-8")
    assert main(["check", str(tmp_path / "models.toml")], 0.0) == 0, capsys.readouterr()


@pytest.mark.parametrize(("page", "line"), [(page, line) for page, text in found("sh") for line in text.splitlines()])
def test_commands_run(page: str, line: str, daemon: Daemon, tmp_path: Path) -> None:
    program, verb, *arguments = shlex.split(line)
    assert program == "wakeful"
    if verb in RUN_ELSEWHERE:
        return
    if DEPENDS.intersection(arguments):
        parser = Parser(f"wakeful {verb}", "")
        bench_options.add_arguments(parser)
        assert bench_options.load_of(parser.parse_args(arguments))
        return
    (tmp_path / "repository" / "fraud" / "1").mkdir(parents=True)
    onnx_models.ident(tmp_path / "repository" / "fraud" / "1" / "model.onnx")
    quick = [part.replace(ADDRESS, daemon.url) for part in arguments]
    quick = ["1" if before == "--duration" else part for before, part in zip(["", *quick], quick, strict=False)]
    done = subprocess.run([sys.executable, "-m", "wakeful", verb, *quick], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
