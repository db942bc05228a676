"""Each tutorial is followed as it stands, but for the port, and prints what it says that it prints."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon import running
from tests.docs.guide import blocks, missing

TUTORIALS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.md"))
ADDRESS = "http://127.0.0.1:8080"


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_can_be_followed(page: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("wakeful", "-m wakeful"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "120"}
    address = ADDRESS
    with ExitStack() as stack:
        for block in blocks(page.read_text("utf-8")):
            if block.commands.startswith("$"):
                continue  # for people alone
            if block.commands.startswith("wakeful serve "):
                options = block.commands.split()[2:]
                daemon = stack.enter_context(running(tmp_path, *(str(tmp_path / one) if one == "models" else one for one in options), "--no-grpc"))
                address = environment["WAKEFUL_URL"] = daemon.url
                continue
            command = ["bash", "-euc", block.commands.replace(ADDRESS, address)]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode == 0, f"line {block.line}: {done.stdout}{done.stderr}"
            assert missing(block.expected, done.stdout) is None, f"line {block.line}: {done.stdout}{done.stderr}"
