"""`wakeful serve` with a configuration that is wrong: it ends before it listens, and tells all that is wrong, where, and what to write instead.

Each kind of fault has its test in tests/config; here the command itself is asked.
"""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import running

WRONG = """\
max_delay_ms = 5

[server]
port = "8080"
lame_duck_secs = nan

[defaults]
max_batchsize = 8
max_batch_size = "8"
queue_limit = -1
autoscale_queue_threshold = 0
max_batch_delay_ms = inf

[[models]]
id = "a"
path = "a.onnx"
min_replicas = 3
max_replicas = 2

[[models]]
id = "A"
path = "a.onnx"
max_batch_size = 1000000000
max_body = 7

[[models]]
id = "a"
path = "nowhere.onnx"
"""
FOUND = [
    (1, "`max_delay_ms` belongs to [defaults] or [[models]]"), (4, "write 8080 without quotes"), (5, "got nan"),
    (8, "did you mean `max_batch_size`?"), (9, "write 8 without quotes"), (10, "`queue_limit` must be 1 or more, got -1"),
    (11, "`autoscale_queue_threshold` must be 1 or more, got 0"), (12, "got inf"), (18, "min_replicas 3 is above max_replicas 2"),
    (21, 'the id "A" differs from "a" only in case'), (23, "got 1000000000"), (24, "`max_body` belongs to [server]"),
    (27, 'the id "a" is taken (line 15)'), (28, "nowhere.onnx does not exist"),
]
"""Line, and words that stand in what is said of it."""
UNREADABLE = {
    "twice.toml": (b"[server]\nport = 1\n[server]\n", "twice.toml:3:8"),
    "open.toml": (b"[server\n", "open.toml:1:8"),
    "utf16.toml": ("[server]".encode("utf-16"), "UTF-8"),
    "twice.json": (b'{"server": {}, "server": {}}', "twice.json"),
}
GOOD = {"empty.toml": b"", "marked.toml": b"\xef\xbb\xbf[defaults]\r\nmax_batch_size = 7\r\n"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("configurations")
    onnx_models.ident(directory / "a.onnx")
    (directory / "wrong.toml").write_text(WRONG, encoding="utf-8")
    for name, (content, _) in UNREADABLE.items():
        (directory / name).write_bytes(content)
    for name, content in GOOD.items():
        (directory / name).write_bytes(content)
    return directory


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    """A port that is in use: whoever gets as far as listening complains of it."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


def complaint(directory: Path, taken: int, *options: str) -> str:
    command = [sys.executable, "-m", "wakeful", "serve", "--port", str(taken), "--cache-dir", str(directory / "cache"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=directory, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert "in use" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not (directory / "cache").exists()
    return done.stderr


def test_all_that_is_wrong_is_told_at_once_with_its_line(directory: Path, taken: int) -> None:
    """C44"""
    text = complaint(directory, taken, "--config", "wrong.toml")
    told = re.findall(r"^error\[[a-z-]+\]: (.*\n(?:.*\n)*?)(?=error|\d+ errors)", text, re.MULTILINE)
    assert [int(line) for one in told for line in re.findall(r"--> wrong\.toml:(\d+):\d+$", one, re.MULTILINE)] == [line for line, _ in FOUND]
    for one, (_, words) in zip(told, FOUND, strict=True):
        assert words in one
    assert f"{len(FOUND)} errors" in text


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_cannot_be_read_whole(directory: Path, taken: int, name: str) -> None:
    """C44: a table that stands there twice among them; none of the two wins."""
    assert UNREADABLE[name][1] in complaint(directory, taken, "--config", name)


def test_paths_that_are_something_else(directory: Path, taken: int) -> None:
    """C44: a directory where a file is meant, a file where a directory is, and what is not there, told together where they come together."""
    assert "for a directory of models: --models-dir" in complaint(directory, taken, "--config", ".")
    text = complaint(directory, taken, "--config", "wrnog.toml", "--models-dir", "a.onnx")
    assert "near: wrong.toml" in text
    assert "a.onnx" in text


def test_what_is_right_is_obeyed_and_shown(directory: Path, tmp_path: Path) -> None:
    """C44: a file from an editor that marks its beginning, with the line ends of another system; what holds can be asked for."""
    with running(tmp_path, "--config", str(directory / "marked.toml"), "--models-dir", str(directory), "--no-grpc") as daemon:
        (model,) = daemon.call("GET", "/v1/models")[1]
        assert (model["id"], model["max_batch_size"]) == ("a", 7)
        assert daemon.infer("a", "x", [1, 2, 3, 4], [1, 4])[0] == 200


def test_an_empty_file_is_no_fault(directory: Path) -> None:
    """C44"""
    command = [sys.executable, "-m", "wakeful", "check", "empty.toml", "--models-dir", "."]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=directory, stdin=subprocess.DEVNULL)
    assert done.stdout == "1 model, no error: a\n"
