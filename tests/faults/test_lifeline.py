"""No process outlives the daemon, however it ends."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import Daemon, alive, freeze, running, wait_until

MODELS = """
[defaults]
prepare = "off"

[[models]]
id = "endless"
path = "endless.onnx"
batching = "off"

[[models]]
id = "quick"
path = "quick.onnx"
replicas = 2
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    onnx_models.slow(tmp_path / "endless.onnx", 50_000_000)  # ten minutes in one native call
    onnx_models.ident(tmp_path / "quick.onnx")
    (tmp_path / "models.toml").write_text(MODELS)
    return tmp_path


def busy(daemon: Daemon) -> list[int]:
    """The daemon's children, once one replica is deep in a run, others are idle and one is a copy."""
    assert daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    threading.Thread(target=_ask_in_vain, args=(daemon,), daemon=True).start()
    wait_until(lambda: daemon.metric("wakeful_queue_seconds_count", model="endless") == 1, "the long run has begun")
    return list(daemon.children())


def _ask_in_vain(daemon: Daemon) -> None:
    with suppress(OSError):  # the daemon is killed meanwhile
        daemon.infer("endless", "x", [1, 2, 3, 4], [1, 4])


def assert_gone(pids: list[int]) -> None:
    """They are no children of ours, so that nobody's wait decides when they go."""
    assert len(pids) >= 4
    wait_until(lambda: not any(alive(pid) for pid in pids), "all processes are gone")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_daemon_that_dies_takes_everything_along(directory: Path, number: signal.Signals) -> None:
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        pids = busy(daemon)
        daemon.process.send_signal(number)
        assert daemon.process.wait(30) == -number
        assert_gone(pids)


def test_a_daemon_that_dies_takes_those_along_that_stand_still(directory: Path) -> None:
    """A frozen process hears of nothing but SIGKILL."""
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        pids = busy(daemon)
        for pid in pids:
            freeze(pid)
        daemon.process.kill()
        daemon.process.wait(30)
        assert_gone(pids)


def test_a_dead_nursery_leaves_nobody_behind_either(directory: Path) -> None:
    """Its replicas are orphans when the daemon dies; the dead one's lifeline still holds them."""
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        pids = busy(daemon)
        nursery = daemon.nursery()
        os.kill(nursery, signal.SIGKILL)
        daemon.wait_event("restart", text="nursery")
        pids += list(daemon.children())
        daemon.process.kill()
        daemon.process.wait(30)
        assert_gone(pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_that_is_told_to_stop_ends_everything(directory: Path, number: signal.Signals) -> None:
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        assert daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        pids = list(daemon.children())
        assert len(pids) >= 3
        assert daemon.stop(number) == 0
        assert not any(alive(pid) for pid in pids)


def test_children_end_though_the_daemon_was_frozen_before_it_was_killed(directory: Path) -> None:
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        pids = busy(daemon)
        daemon.process.send_signal(signal.SIGSTOP)
        daemon.process.kill()
        daemon.process.wait(30)
        assert_gone(pids)
