"""No descriptors are left: requests are refused with the reason, nothing breaks, and all is well once there is room again."""

import http.client
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import onnx_models
from tests.crowd import Crowd, ask, calm
from tests.daemon import Daemon, running, wait_until

FEW = 112
"""48 are kept for models, so this many leave room for 64 connections."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    models = tmp_path / "models"
    models.mkdir()
    for name in ("first", "second"):
        onnx_models.ident(models / f"{name}.onnx")
    with running(tmp_path, "--models-dir", str(models), "--no-grpc") as daemon:
        yield daemon


@contextmanager
def limited(daemon: Daemon, spare: int) -> Iterator[None]:
    """Let the daemon open `spare` descriptors more, and no others."""
    before = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir(f"/proc/{daemon.process.pid}/fd"))
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (highest + 1 + spare, before[1]))
    yield
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, before)


def infer(daemon: Daemon, model: str) -> int:
    return daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])[0]


def test_the_daemon_takes_all_descriptors_that_it_may_have(daemon: Daemon) -> None:
    soft, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
    assert soft in (hard, 1 << 20)


@pytest.mark.parametrize("spare", range(1, 10, 2))
def test_a_model_without_descriptors_is_refused_and_loads_later(daemon: Daemon, spare: int) -> None:
    """One is for the question itself. Wherever the others end (slots, channel, process, self-test), the daemon goes on."""
    assert infer(daemon, "first") == 200
    wait_until(lambda: any(event["kind"] == "probe" for event in daemon.events()), "nothing else is under way")
    with limited(daemon, spare):
        status, body = daemon.infer("second", "x", [1, 2, 3, 4], [1, 4])
        assert status in (200, 503), body
        if spare < 4:
            assert (status, body["error"]) == (503, "there is no room for another process: Too many open files")
        assert infer(daemon, "first") == 200
    wait_until(lambda: infer(daemon, "second") == 200, "the pause after the failed load is over")
    wait_until(lambda: calm(daemon, "second"), "nothing is left over")
    assert "Traceback" not in daemon.log


def test_a_nursery_that_cannot_be_started_is_started_later(daemon: Daemon) -> None:
    assert infer(daemon, "first") == 200
    nursery = daemon.nursery()
    with limited(daemon, 1):
        os.kill(nursery, signal.SIGKILL)
        daemon.wait_event("restart", text="could not be started")
        assert infer(daemon, "first") == 200
    wait_until(lambda: infer(daemon, "second") == 200, "there is a nursery again")
    assert "Traceback" not in daemon.log


def test_connections_leave_descriptors_for_models(tmp_path: Path) -> None:
    onnx_models.ident(tmp_path / "first.onnx")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    launcher = ("prlimit", f"--nofile={FEW}:{FEW}")
    assert before[1] == resource.RLIM_INFINITY or before[1] >= FEW
    with running(tmp_path, "--models-dir", str(tmp_path), "--no-grpc", launcher=launcher) as daemon:
        with Crowd(daemon, "first", clients=FEW, requests=20) as crowd:
            pass
        assert crowd.wrong == []
        assert crowd.answered >= 20
        assert set(crowd.statuses) <= {200, 503, 0}
        assert all("connections are open" in error for error in crowd.errors if error.startswith("{"))
        wait_until(lambda: infer(daemon, "first") == 200, "connections have been closed")
        assert "Traceback" not in daemon.log


def test_a_connection_for_which_there_is_none_is_closed_at_once_and_others_are_served(daemon: Daemon) -> None:
    """The limit falls while it serves: open connections go on, a new one never hangs, and all is well afterwards."""
    kept = http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)
    assert ask(kept, "first", [1, 2, 3, 4], [1, 4])[0] == 200
    daemon.wait_event("probe", "first")
    with limited(daemon, 0):
        for number in range(20):
            with socket.create_connection((daemon.host, daemon.port), 60) as new:
                assert answered(new) in (b"", b"HTTP/1.1 200", b"HTTP/1.1 503")  # a descriptor may just have become free
            assert ask(kept, "first", [number, 2, 3, 4], [1, 4])[1]["outputs"][0]["data"] == [number, 2, 3, 4]
    kept.close()
    assert infer(daemon, "second") == 200
    assert "Traceback" not in daemon.log


def answered(connection: socket.socket) -> bytes:
    """The beginning of an answer; empty when there is none. Fails if it takes a minute."""
    try:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        return connection.recv(1000)[:12]
    except ConnectionError:
        return b""
