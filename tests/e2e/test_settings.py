"""Settings that nothing but the assembled daemon can show to change something. All others have their tests where they are obeyed."""

import json
import socket
from contextlib import ExitStack
from pathlib import Path

from tests import onnx_models
from tests.daemon import running, wait_until

MODELS = """
[defaults]
prepare = "off"

[[models]]
id = "one"
path = "ident.onnx"

[[models]]
id = "two"
path = "ident.onnx"
threads = 2

[[models]]
id = "elsewhere"
path = "ident.onnx"
device = "cuda:7"
"""


def test_where_and_with_how_many_threads_a_model_runs(tmp_path: Path) -> None:
    onnx_models.ident(tmp_path / "ident.onnx")
    (tmp_path / "models.toml").write_text(MODELS)
    with running(tmp_path, "--config", str(tmp_path / "models.toml")) as daemon:
        threads = {}
        for model in ("one", "two"):
            assert daemon.call("POST", f"/v2/repository/models/{model}/load")[0] == 200
            wait_until(lambda: len(daemon.replicas()) == 1, "a copy that took the self-test is gone")
            threads[model] = len(list(Path(f"/proc/{daemon.replicas()[0]}/task").iterdir()))
            assert daemon.call("POST", f"/v2/repository/models/{model}/unload")[0] == 200
        assert threads == {"one": 1, "two": 2}
        status, answer = daemon.infer("elsewhere", "x", [1, 2, 3, 4], [1, 4])
        assert status == 503
        assert "cuda:7" in answer["error"]


def test_log_lines_are_json_if_that_is_wanted(tmp_path: Path) -> None:
    with running(tmp_path, "--demo", "--log-format", "json") as daemon:
        assert daemon.infer("demo-model", "input", [1, 2, 3, 4], [1, 4])[0] == 200
    lines = [json.loads(line) for line in daemon.log.splitlines()]  # of a daemon that has ended: an answer does not wait for the line about its load
    assert {"start", "ready", "load"} <= {line["kind"] for line in lines}
    (load,) = [line for line in lines if line["kind"] == "load"]
    assert load["subject"] == "demo-model"
    assert load["seconds"] > 0


def test_an_idle_connection_is_closed_after_keep_alive_secs(tmp_path: Path) -> None:
    with running(tmp_path, "--keep-alive-secs", "0.1") as daemon, socket.create_connection((daemon.host, daemon.port), timeout=30) as client:
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert client.recv(4096).endswith(b"}")
        assert client.recv(4096) == b""


def rest(client: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    with client.makefile("rb") as file:
        return file.read()


def test_limits_of_heads_connections_and_patience(tmp_path: Path) -> None:
    options = ("--max-header", "1KiB", "--max-connections", "2", "--client-timeout-secs", "0.2")
    with running(tmp_path, *options) as daemon:
        with socket.create_connection((daemon.host, daemon.port), timeout=30) as long:
            long.sendall(b"GET /v2 HTTP/1.1\r\nx: " + b"x" * 1024 + b"\r\n\r\n")
            answer = rest(long)
            assert answer.startswith(b"HTTP/1.1 431 ")
            assert b"max_header" in answer
        with socket.create_connection((daemon.host, daemon.port), timeout=30) as slow:
            slow.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\ncontent-length: 10\r\n\r\n{")
            assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")
        wait_until(lambda: not daemon.connections(), "nobody is connected")
        with ExitStack() as stack:
            first, second, third = (stack.enter_context(socket.create_connection((daemon.host, daemon.port), timeout=30)) for _ in range(3))
            answer = rest(third)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"max_connections" in answer
            second.sendall(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
            assert second.recv(4096).startswith(b"HTTP/1.1 200 ")
            first.close()


def test_the_cache_keeps_to_its_limit(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for megabytes, name in enumerate(("first", "second"), start=2):
        onnx_models.heavy(models / f"{name}.onnx", megabytes)
    with running(tmp_path / "daemon", "--models-dir", str(models), "--cache-limit", "0") as daemon:
        for name in ("first", "second"):
            daemon.call("POST", f"/v2/repository/models/{name}/load")
            daemon.wait_event("prepare", name, text="copy of")
        wait_until(lambda: len(list((tmp_path / "daemon" / "cache").rglob("weights.bin"))) == 1, "only the latest copy is left")
