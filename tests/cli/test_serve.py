"""What `wakeful serve` says when it starts and stops, read on a terminal and in a log."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running
from wakeful import __version__
from wakeful.cli import opening
from wakeful.cli.daemon import holder_of
from wakeful.config.settings import MemorySettings
from wakeful.memory.budget import Memory

SECONDS = 60.0


class Terminal:
    """`wakeful` on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        ours, theirs = pty.openpty()
        self.fd = ours
        self.text = ""
        command = [sys.executable, "-m", "wakeful", *arguments]
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)

    def read_until(self, done: Callable[[str], bool]) -> str:
        end = time.monotonic() + SECONDS
        while not done(self.text) and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:  # the last writer has gone
                    break
                self.text += data.decode().replace("\r\n", "\n")
        return self.text


def curl_of(text: str) -> str:
    return next(line[line.index("curl ") :] for line in text.splitlines() if " try" in line)


def paste(command: str) -> object:
    return json.loads(subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=60).stdout)


def test_a_terminal_shows_a_page_whose_command_answers(tmp_path: Path) -> None:
    terminal = Terminal("serve", "--demo", "--port", "0", "--no-grpc", "--cache-dir", str(tmp_path))
    try:
        text = terminal.read_until(lambda text: "ready" in text and text.endswith("stops\n"))
        assert text.startswith("Wakeful ")
        assert "machine" in text
        assert "memory budget" in text
        assert re.search(r"^  listen   http://127.0.0.1:\d+ \(page http://127.0.0.1:\d+/ui/, /metrics\)$", text, re.MULTILINE)
        assert "  models   2 asleep (demo-model, digits)\n" in text
        answer = paste(curl_of(text))
        assert isinstance(answer, dict)
        assert answer["outputs"][0]["shape"] == [1, 3]
        before = len(terminal.text)
        terminal.process.send_signal(signal.SIGINT)
        after = terminal.read_until(lambda text: text.endswith("stopped\n"))[before:]
        assert terminal.process.wait(SECONDS) == 0
        lines = [line for line in after.splitlines() if " stop " in line]
        assert len(lines) == 1
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.fd)


def test_elsewhere_the_same_is_logged(tmp_path: Path) -> None:
    with running(tmp_path, "--no-grpc") as daemon:
        kinds = [line.split()[1] for line in daemon.log.splitlines()]
        assert set(kinds) <= {"start", "config", "ready"}
        assert kinds[0] == "start"
        assert kinds[-1] == "ready"
        assert paste(curl_of(daemon.log)) == []
        assert "--demo" in daemon.log


def test_a_models_directory_without_models_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with running(tmp_path, "--models-dir", str(tmp_path / "models")) as daemon:
        assert "put an .onnx file into" in daemon.log
        command = next(line[line.index("curl ") :] for line in daemon.log.splitlines() if "/v1/models/refresh" in line)
        assert paste(command) == {"models": []}


def test_whoever_has_models_sees_what_the_first_takes(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    onnx_models.ident(tmp_path / "models" / "mine.onnx")
    with running(tmp_path, "--models-dir", str(tmp_path / "models"), "--no-grpc", "--api-key", "admin:a-key-of-24-characters-") as daemon:
        command = curl_of(daemon.log)
        assert "Bearer KEY" in command
        answer = paste(command.replace("KEY", "a-key-of-24-characters-"))
        assert isinstance(answer, dict)
        assert (answer["name"], answer["inputs"][0]["name"]) == ("mine", "x")


def test_requests_are_lines_only_if_that_is_wanted(tmp_path: Path) -> None:
    for options, lines in (((), 0), (("--log-requests",), 2)):
        with running(tmp_path / str(lines), "--demo", *options) as daemon:
            assert daemon.infer("demo-model", "input", [1, 2, 3, 4], [1, 4])[0] == 200
            assert daemon.infer("demo-model", "inptu", [1, 2, 3, 4], [1, 4])[0] == 400
        written = [line.split(" ", 1)[1] for line in daemon.log.splitlines() if " request " in line]
        assert len(written) == lines
        assert all(line.startswith("request demo-model oip ") for line in written)


@pytest.mark.parametrize("option", ["--port", "--grpc-port"])
def test_a_busy_address_names_its_holder(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        assert holder_of(port).startswith(f"pid {os.getpid()}, ")
        ports = {"--port": "0", "--grpc-port": "0"} | {option: str(port)}
        command = [sys.executable, "-m", "wakeful", "serve", *chain.from_iterable(ports.items()), "--cache-dir", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 2
    assert f"127.0.0.1:{port} is already in use" in done.stderr
    assert f"held by: pid {os.getpid()}" in done.stderr
    assert f"serve {option} 0" in done.stderr
    assert ("--no-grpc" in done.stderr) == (option == "--grpc-port")


def test_a_busy_address_of_another_wakeful(tmp_path: Path) -> None:
    with running(tmp_path, "--demo", "--no-grpc") as daemon:
        command = [sys.executable, "-m", "wakeful", "serve", "--port", str(daemon.port), "--cache-dir", str(tmp_path / "other")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 2
    error, held, hint = done.stderr.splitlines()
    assert error == f"error: 127.0.0.1:{daemon.port} is already in use"
    assert re.fullmatch(rf"  held by: wakeful {__version__}, pid {daemon.process.pid}, up .*, 2 models", held)
    assert hint == f"  hint: `wakeful ps --url {daemon.url}` talks to that one; for another: wakeful serve --port 0"


def test_a_checked_start(tmp_path: Path) -> None:
    with running(tmp_path, "--demo", "--check") as daemon:
        assert daemon.log.startswith("2 models, no error: ")


def test_an_address_that_is_not_ours() -> None:
    command = [sys.executable, "-m", "wakeful", "serve", "--host", "203.0.113.7", "--port", "0", "--insecure"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 2
    assert "cannot listen on 203.0.113.7:0" in done.stderr


def test_listening_for_everybody_is_said(tmp_path: Path) -> None:
    (tmp_path / "daemon").mkdir()
    daemon = Daemon(tmp_path / "daemon", "--host", "0.0.0.0", "--insecure", "--demo")
    try:
        assert "whoever reaches it may use these models (--insecure)" in daemon.log
        assert "http://127.0.0.1:" in daemon.log
    finally:
        daemon.stop()


@pytest.mark.parametrize(
    ("limit", "budget", "text"),
    [
        (None, 850, "memory budget 850 B, 85% of 1000 B (the machine)"),
        (0.5, 500, "memory budget 500 B, 50% of 1000 B (the machine), by memory_limit"),
        (700, 700, "memory budget 700 B by memory_limit; there is 1000 B (the machine)"),
    ],
)
def test_the_budget_names_its_source(limit: float | None, budget: int, text: str) -> None:
    assert opening.budget_text(MemorySettings(limit), budget, Memory(1000, 1000, "the machine")) == text


def test_long_texts_are_wrapped_and_commands_are_not() -> None:
    rows = [opening.Row("machine", "word " * 40), opening.Row("try", "curl " + "x" * 200, wrap=False)]
    lines = opening.page(rows)
    assert all(len(line) <= opening.WIDTH for line in lines[:-1])
    assert lines[-1].endswith("x" * 200)
