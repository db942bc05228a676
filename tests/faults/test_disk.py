"""The cache's disk is full, or cannot be written: models are served as shipped, and copied as soon as there is room."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, running, wait_until
from tests.faults.disks import fill, mounted

MODEL_MB = 2
DISK_MB = 8


@contextmanager
def disk(path: Path, options: str) -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            stack.enter_context(mounted(path, options))
        except OSError as error:
            pytest.skip(str(error))
        yield path


@pytest.fixture
def models(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    models.mkdir()
    onnx_models.weighty(models / "first.onnx", MODEL_MB)
    onnx_models.weighty(models / "second.onnx", MODEL_MB + 1)
    return models


def options(models: Path) -> list[str]:
    return ["--models-dir", str(models), "--no-grpc"]


def served(daemon: Daemon, model: str) -> None:
    with Crowd(daemon, model, clients=3, requests=5) as crowd:
        pass
    assert crowd.wrong == []
    assert crowd.statuses == {200: 15}, crowd.errors[:3]


def load_again(daemon: Daemon, model: str) -> str:
    assert daemon.call("POST", f"/v2/repository/models/{model}/unload")[0] == 200
    last = daemon.events()[-1]["seq"]
    served(daemon, model)
    return str(daemon.wait_event("load", model, since=last)["figures"]["how"])


def test_a_full_disk_costs_the_copy_and_nothing_else(models: Path, tmp_path: Path) -> None:
    """The reason is in an event, what was half written is gone, and once there is room the next load brings a copy."""
    with disk(tmp_path / "daemon" / "cache", f"size={DISK_MB}m") as cache, running(tmp_path / "daemon", *options(models)) as daemon:
        ballast = fill(cache)
        served(daemon, "first")
        event = daemon.wait_event("prepare", "first", text="no prepared copy")
        assert "loading goes on as shipped" in event["text"]
        assert load_again(daemon, "first") == "as shipped"
        since = daemon.wait_event("prepare", "first", text="no prepared copy", since=event["seq"])["seq"]
        ballast.unlink()
        assert load_again(daemon, "first") == "as shipped"
        daemon.wait_event("prepare", "first", text="copy of", since=since)
        assert load_again(daemon, "first") == "prepared copy"
        wait_until(lambda: not [path for work in cache.glob("work-*") for path in work.iterdir() if path.is_dir()], "nothing half written is left")
        assert daemon.call("GET", "/v2/health/ready")[0] == 200
        assert "Traceback" not in daemon.log
        fill(cache)
        assert daemon.stop() == 0  # what was learnt cannot be written either


def test_a_cache_that_cannot_be_written_costs_the_copies_and_nothing_else(models: Path, tmp_path: Path) -> None:
    with disk(tmp_path / "daemon" / "cache", "size=1m,ro"), running(tmp_path / "daemon", *options(models)) as daemon:
        served(daemon, "first")
        assert load_again(daemon, "first") == "as shipped"
        served(daemon, "second")
        assert daemon.log.count("the cache cannot be written") == 1
        assert daemon.call("GET", "/v2/health/ready")[0] == 200
        wait_until(lambda: calm(daemon, "first") and calm(daemon, "second"), "nothing is left over")
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log
