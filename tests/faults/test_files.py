"""A model's file, or its prepared copy, is replaced, cut short or removed at the worst moment."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, alive, freeze, running, wait_until

MODELS = """
[defaults]
idle_timeout_secs = 0
prepare = "off"

[[models]]
id = "loading"
path = "loading.onnx"

[[models]]
id = "running"
path = "running.onnx"
max_replicas = 1

[[models]]
id = "mapped"
path = "mapped.onnx"
prepare = "auto"
max_replicas = 1

[[models]]
id = "bystander"
path = "ident.onnx"
pinned = true
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("files")
    onnx_models.weighty(directory / "whole.onnx", 24)
    for name in ("loading", "running", "mapped"):
        shutil.copy(directory / "whole.onnx", directory / f"{name}.onnx")
    onnx_models.ident(directory / "ident.onnx")
    (directory / "models.toml").write_text(MODELS)
    return directory


@pytest.fixture(scope="module")
def daemon(directory: Path) -> Iterator[Daemon]:
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


@pytest.fixture(autouse=True)
def no_harm(daemon: Daemon) -> Iterator[None]:
    with Crowd(daemon, "bystander", clients=1) as crowd:
        yield
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    assert daemon.call("GET", "/v2/health/ready")[0] == 200
    assert "Traceback" not in daemon.log


def replace(path: Path) -> None:
    shutil.copy(path.with_name("ident.onnx"), path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    os.truncate(path, 0)


HARMS = [replace, cut_short, remove]
Harm = Callable[[Path], None]


def mend(path: Path) -> None:
    shutil.copy(path.with_name("whole.onnx"), path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def right(daemon: Daemon, model: str) -> bool:
    status, body = daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])
    if status == 200:
        assert body["outputs"][0]["data"] == [1, 2, 3, 4]
    else:
        assert status == 503, body
        assert body["error"]
    return status == 200


@pytest.mark.parametrize("harm", HARMS)
def test_while_it_loads(daemon: Daemon, directory: Path, harm: Harm) -> None:
    """Harm and repair again and again while crowds wake it: each answer is right or says what is wrong with the file."""
    path = directory / "loading.onnx"
    for _ in range(3):
        assert daemon.call("POST", "/v2/repository/models/loading/unload")[0] == 200
        with Crowd(daemon, "loading", clients=3, requests=2) as crowd:
            harm(path)
        assert crowd.wrong == []
        assert set(crowd.statuses) <= {200, 503}, crowd.errors[:3]
        mend(path)
    wait_until(lambda: right(daemon, "loading"), "it is loaded again")
    wait_until(lambda: calm(daemon, "loading"), "nothing is left over")


@pytest.mark.parametrize("harm", HARMS)
def test_while_it_runs(daemon: Daemon, directory: Path, harm: Harm) -> None:
    """Who is awake has read it all and never looks again; the next load sees what has become of the file."""
    path = directory / "running.onnx"
    assert right(daemon, "running")
    restarts = daemon.metric("wakeful_restarts_total", model="running")
    with Crowd(daemon, "running", clients=3) as crowd:
        harm(path)
        more = crowd.answered + 30
        wait_until(lambda: crowd.answered > more, "requests are answered")
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    assert daemon.metric("wakeful_restarts_total", model="running") == restarts
    assert daemon.call("POST", "/v2/repository/models/running/unload")[0] == 200
    assert right(daemon, "running") == (harm is replace)
    mend(path)
    assert right(daemon, "running")  # at once: a repaired file is tried without a pause


def copied(daemon: Daemon, since: int) -> None:
    """Wait for the prepared copy, and have it opened."""
    daemon.wait_event("prepare", "mapped", text="copy of", since=since)
    assert daemon.call("POST", "/v2/repository/models/mapped/unload")[0] == 200
    last = daemon.events()[-1]["seq"]
    assert right(daemon, "mapped")
    assert daemon.wait_event("load", "mapped", since=last)["figures"]["how"] == "prepared copy"


def test_while_its_copy_is_prepared(daemon: Daemon, directory: Path) -> None:
    """What was begun from the old file is not taken for a copy of the new one."""
    since = daemon.events()[-1]["seq"]
    assert right(daemon, "mapped")
    process = preparing(daemon)
    freeze(process.pid)
    assert alive(process.pid)
    onnx_models.heavy(directory / "mapped.new", 8).rename(directory / "mapped.onnx")
    process.resume()
    wait_until(lambda: not alive(process.pid), "it has ended")
    assert daemon.call("POST", "/v1/models/refresh")[0] == 200
    assert daemon.infer("mapped", "x", [0.5] * 512, [1, 512])[0] == 200
    mend(directory / "mapped.onnx")
    assert daemon.call("POST", "/v1/models/refresh")[0] == 200
    assert right(daemon, "mapped")
    copied(daemon, since)


def preparing(daemon: Daemon) -> psutil.Process:
    """The process that writes a copy: the only one of the lowest priority."""
    found: list[psutil.Process] = []

    def seen() -> bool:
        for pid in daemon.replicas():
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.nice() == 19:
                    found.append(process)
        return bool(found)

    wait_until(seen, "a preparation has begun")
    return found[0]


@pytest.mark.parametrize("harm", [empty, remove])
def test_while_its_copy_is_mapped(daemon: Daemon, directory: Path, harm: Harm) -> None:
    """Pages that are gone end the process (SIGBUS): its request is run again, from the file as shipped, and another copy is made."""
    assert right(daemon, "mapped")
    [weights] = (directory / "cache").rglob("weights.bin")
    since = daemon.events()[-1]["seq"]
    with Crowd(daemon, "mapped", clients=3) as crowd:
        harm(weights)
        more = crowd.answered + 30
        wait_until(lambda: crowd.answered > more, "requests are answered")
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    deaths = [event for event in daemon.events(model="mapped", since=str(since)) if event["kind"] == "restart"]
    assert ["SIGBUS" in event["text"] for event in deaths] == ([True] if harm is empty else [])
    assert daemon.call("POST", "/v2/repository/models/mapped/unload")[0] == 200
    assert right(daemon, "mapped")
    copied(daemon, since)


def test_a_models_directory_that_is_away_for_a_while_costs_no_model(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    onnx_models.ident(models / "m.onnx")
    with running(tmp_path / "daemon", "--models-dir", str(models), "--no-grpc") as daemon:
        assert daemon.infer("m", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        models.rename(tmp_path / "away")
        assert daemon.call("POST", "/v1/models/refresh")[0] == 200
        daemon.wait_event("config", text="cannot be read, so nothing has changed")
        assert daemon.infer("m", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        (tmp_path / "away").rename(models)
        assert daemon.call("POST", "/v1/models/refresh")[0] == 200
        assert daemon.infer("m", "x", [1, 2, 3, 4], [1, 4])[0] == 200
