"""The kernel kills a replica for lack of memory: in a control group of our own, small enough to be filled."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, running, wait_until
from wakeful.memory import budget

LIMIT_MB = 448
MODELS = """
[defaults]
prepare = "off"
idle_timeout_secs = 0
min_residency_secs = 0.5

[[models]]
id = "hungry"
path = "hungry.onnx"

[[models]]
id = "steady"
path = "steady.onnx"
pinned = true

[[models]]
id = "giant"
path = "giant.onnx"
"""
ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


@pytest.fixture(scope="module")
def group() -> Iterator[Path]:
    """A child of our own memory group, so that what happens in it is charged to us as well. Skips where we may not make one (version 1 only)."""
    own = budget._own_paths(budget.PROC).get("memory")
    if own is None:
        pytest.skip("no memory controller of cgroup v1 here")
    parent = budget.CGROUPS / "memory" / own.lstrip("/")
    path = parent / f"wakeful-test-{os.getpid()}"
    try:
        if (parent / "memory.use_hierarchy").read_text().strip() != "1":
            pytest.skip("groups are not charged to their parents here")
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made here: {error}")
    try:
        (path / "memory.limit_in_bytes").write_text(str(LIMIT_MB * 1024 * 1024))
        with suppress(OSError):  # only where swap is accounted for
            (path / "memory.memsw.limit_in_bytes").write_text(str(LIMIT_MB * 1024 * 1024))
        if "oom_kill " not in (path / "memory.oom_control").read_text():
            pytest.skip("this kernel does not count its kills by group")
        yield path
    finally:
        wait_until(lambda: _removed(path), "the group is empty")


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def daemon(group: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("oom")
    onnx_models.hungry(directory / "hungry.onnx")
    onnx_models.slow(directory / "steady.onnx", 200)
    onnx_models.weighty(directory / "giant.onnx", 200)  # fits the budget by its size, but not while its weights are unpacked
    (directory / "models.toml").write_text(MODELS)
    options = ["--config", str(directory / "models.toml"), "--no-grpc"]
    with running(directory, *options, launcher=["sh", "-c", ENTER, str(group)]) as daemon:
        yield daemon


def test_the_budget_is_a_share_of_the_groups_limit(daemon: Daemon) -> None:
    assert daemon.metric("wakeful_memory_budget_bytes") == int(0.85 * LIMIT_MB * 1024 * 1024)


def test_a_run_that_fills_the_group_costs_its_replica_and_nobody_else(daemon: Daemon) -> None:
    assert daemon.infer("hungry", "size", [4], [1], "INT64")[0] == 200
    with Crowd(daemon, "steady", clients=3) as crowd:
        status, body = daemon.infer("hungry", "size", [LIMIT_MB * 1024 * 1024 // 2], [1], "INT64")  # four bytes each
    assert status == 503
    assert "out of memory" in body["error"]
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    event = daemon.wait_event("restart", "hungry", text="for lack of memory")
    assert event["figures"]["cause"] == "oom"
    assert daemon.metric("wakeful_restarts_total", model="hungry", cause="oom") == 2  # and never a third
    assert daemon.infer("hungry", "size", [4], [1], "INT64")[0] == 200
    wait_until(lambda: calm(daemon, "hungry"), "nothing is left over")


def test_a_load_that_fills_the_group_has_failed_and_the_others_serve_on(daemon: Daemon) -> None:
    status, body = daemon.infer("giant", "x", [1, 2, 3, 4], [1, 4])
    assert status == 503
    assert "out of memory" in body["error"]
    assert daemon.process.poll() is None
    assert daemon.infer("steady", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    assert daemon.infer("hungry", "size", [4], [1], "INT64")[0] == 200
    wait_until(lambda: calm(daemon, "giant"), "nothing is left over")
