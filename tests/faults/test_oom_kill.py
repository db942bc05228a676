"""The kernel kills a replica for lack of memory: in a control group of our own, small enough to be filled."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, running, wait_until
from tests.groups import child_group, inside
from wakeful.memory import budget

LIMIT_MB = 448
FAIR_MB = 64
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
id = "fair"
path = "fair.onnx"

[[models]]
id = "giant"
path = "giant.onnx"
"""


@pytest.fixture(scope="module", params=[1, 2])
def group(request: pytest.FixtureRequest) -> Iterator[Path]:
    """With a limit, and the group below it that the daemon lives in, without; of either version. Skips for one of the two on any machine."""
    if (request.param == 1) != ("memory" in budget._own_paths(budget.PROC)):
        pytest.skip(f"no memory controller of cgroup v{request.param} here")
    with child_group("memory", "inner", parent=_beside_us() if request.param == 2 else None) as path:
        (_limit_v1 if request.param == 1 else _limit_v2)(path)
        yield path


def _beside_us() -> Path:
    """In version 2 a group with processes gives no memory to children, so the new group is a sibling of our own."""
    base = budget.CGROUPS / "unified" if (budget.CGROUPS / "unified").is_dir() else budget.CGROUPS
    own = budget._own_paths(budget.PROC).get("", "/")
    return (base / own.lstrip("/")).parent if own != "/" else base


def _limit_v1(path: Path) -> None:
    if (path.parent / "memory.use_hierarchy").read_text().strip() != "1":
        pytest.skip("groups are not charged to their parents here")
    (path / "memory.limit_in_bytes").write_text(str(LIMIT_MB * 1024 * 1024))
    with suppress(OSError):  # only where swap is accounted for
        (path / "memory.memsw.limit_in_bytes").write_text(str(LIMIT_MB * 1024 * 1024))
    if "oom_kill " not in (path / "memory.oom_control").read_text():
        pytest.skip("this kernel does not count its kills by group")


def _limit_v2(path: Path) -> None:
    (path / "memory.max").write_text(str(LIMIT_MB * 1024 * 1024))
    with suppress(OSError):  # only where swap is accounted for
        (path / "memory.swap.max").write_text("0")


def _used(group: Path) -> int:
    """Bytes, page cache among them."""
    current = group / "memory.current"
    return int((current if current.exists() else group / "memory.usage_in_bytes").read_text())


@pytest.fixture(scope="module")
def daemon(group: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("oom")
    onnx_models.hungry(directory / "hungry.onnx")
    onnx_models.slow(directory / "steady.onnx", 200)
    onnx_models.weighty(directory / "fair.onnx", FAIR_MB)
    onnx_models.weighty(directory / "giant.onnx", 200)  # fits the budget by its size, but not while its weights are unpacked
    (directory / "models.toml").write_text(MODELS)
    options = ["--config", str(directory / "models.toml"), "--no-grpc"]
    with running(directory, *options, launcher=inside(group / "inner")) as daemon:
        yield daemon


def test_the_budget_is_a_share_of_the_groups_limit(daemon: Daemon) -> None:
    """C32: of the group above the daemon's own, which has none."""
    assert daemon.metric("wakeful_memory_budget_bytes") == int(0.85 * LIMIT_MB * 1024 * 1024)


def test_a_run_that_fills_the_group_costs_its_replica_and_nobody_else(daemon: Daemon) -> None:
    """C26: killed twice, and never a third time; callers of another model notice nothing."""
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


def test_page_cache_is_no_reason_to_refuse_a_load(daemon: Daemon, group: Path, tmp_path: Path) -> None:
    """C32: the group is full of a file that was read, which the kernel gives up as soon as somebody needs the room."""
    file, since = tmp_path / "empty", daemon.events()[-1]["seq"]
    file.touch()
    os.truncate(file, LIMIT_MB * 1024 * 1024)
    subprocess.run([*inside(group / "inner"), "cat", str(file)], check=True, timeout=60, stdout=subprocess.DEVNULL)
    assert _used(group) > (LIMIT_MB - FAIR_MB) * 1024 * 1024  # no room for it, were the cache counted as used
    assert daemon.infer("fair", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    assert not [event for event in daemon.events(since=str(since)) if event["kind"] == "evict"]
