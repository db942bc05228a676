"""A nursery that cannot do its work: it hangs, it crashes, or the system gives it no process. Who is awake serves on, and who waits is answered."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, alive, freeze, running, wait_until
from tests.groups import child_group

MODELS = """
[defaults]
idle_timeout_secs = 0
prepare = "off"

[[models]]
id = "quick"
path = "ident.onnx"

[[models]]
id = "pair"
path = "slow.onnx"
max_replicas = 2
autoscale_queue_threshold = 2

[[models]]
id = "bystander"
path = "ident.onnx"
pinned = true
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("nursery")
    onnx_models.ident(directory / "ident.onnx")
    onnx_models.slow(directory / "slow.onnx", 300)
    (directory / "models.toml").write_text(MODELS)
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        assert daemon.infer("bystander", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        daemon.wait_event("probe", "bystander")
        yield daemon


@pytest.fixture(autouse=True)
def no_harm(daemon: Daemon) -> Iterator[None]:
    """Whatever happens to a nursery, the bystander is served meanwhile, and in the end the daemon is ready and nothing is left over."""
    with Crowd(daemon, "bystander", clients=2) as crowd:
        yield
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    assert daemon.call("GET", "/v2/health/ready")[0] == 200
    assert daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    wait_until(lambda: calm(daemon, "quick") and calm(daemon, "pair"), "nothing is left over")
    wait_until(lambda: len(nurseries(daemon)) == 1, "there is one nursery")
    assert "Traceback" not in daemon.log


def nurseries(daemon: Daemon) -> list[int]:
    return [pid for pid, role in daemon.children().items() if role == "nursery"]


def asleep(daemon: Daemon, model: str) -> int:
    """Put a model to sleep. Returns the number of the last event."""
    assert daemon.call("POST", f"/v2/repository/models/{model}/unload")[0] == 200
    number: int = daemon.events()[-1]["seq"]
    return number


def test_one_that_hangs_is_replaced_and_who_waits_for_it_is_answered(daemon: Daemon) -> None:
    """It is noticed long before load_timeout_secs: a fork takes milliseconds."""
    since = asleep(daemon, "quick")
    [nursery] = nurseries(daemon)
    freeze(nursery)
    with Crowd(daemon, "quick", clients=3, requests=1) as crowd:
        pass
    assert crowd.wrong == []
    assert crowd.statuses == {200: 3}, crowd.errors
    assert "it hung: it was told to fork and did not" in daemon.wait_event("restart", text="nursery", since=since)["text"]
    wait_until(lambda: not alive(nursery), "it is gone")
    assert daemon.metric("wakeful_requests_total", model="quick", outcome="unavailable") == 0


def test_one_that_stands_still_and_goes_on_in_time_is_kept(daemon: Daemon) -> None:
    asleep(daemon, "quick")
    [nursery] = nurseries(daemon)
    freeze(nursery)
    with Crowd(daemon, "quick", clients=3, requests=1) as crowd:
        wait_until(lambda: daemon.metric("wakeful_replicas", model="quick", state="starting") == 1, "it is asked for a process")
        os.kill(nursery, signal.SIGCONT)
    assert crowd.statuses == {200: 3}, crowd.errors
    assert nurseries(daemon) == [nursery]


def test_one_that_crashes_is_replaced(daemon: Daemon) -> None:
    since = asleep(daemon, "quick")
    [nursery] = nurseries(daemon)
    os.kill(nursery, signal.SIGSEGV)
    assert daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    assert "killed by signal 11" in daemon.wait_event("restart", text="nursery", since=since)["text"]


@pytest.fixture
def full(daemon: Daemon) -> Iterator[Path]:
    """All processes of the daemon in a group that may have no further one. Skips where no such group can be made."""
    with child_group("pids") as group:
        try:
            for pid in (daemon.process.pid, *daemon.children()):
                (group / "cgroup.procs").write_text(str(pid))
            (group / "pids.max").write_text((group / "pids.current").read_text())
            yield group
        finally:
            for line in (group / "cgroup.procs").read_text().split():
                (group.parent / "cgroup.procs").write_text(line)


def test_without_a_process_to_be_had_a_load_is_refused_with_the_reason(daemon: Daemon, full: Path) -> None:
    """And the same model is loaded as soon as there is one."""
    (full / "pids.max").write_text("max")
    asleep(daemon, "quick")
    pid = daemon.wake("quick")
    asleep(daemon, "quick")
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "it counts no more")
    (full / "pids.max").write_text((full / "pids.current").read_text())
    status, body = daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])
    assert status == 503
    assert "there is no room for another process: Resource temporarily unavailable" in body["error"]
    (full / "pids.max").write_text("max")
    wait_until(lambda: daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200, "the pause after the failed load is over")


def test_a_replica_that_cannot_be_copied_serves_on(daemon: Daemon, full: Path) -> None:
    """The attempt is made in its process, which must not end for that."""
    (full / "pids.max").write_text("max")
    assert daemon.infer("pair", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    daemon.wait_event("probe", "pair")
    wait_until(lambda: daemon.metric("wakeful_replicas", model="pair", state="ready") == 1 and len(daemon.replicas()) <= 3, "it is alone")
    since = daemon.events()[-1]["seq"]
    (full / "pids.max").write_text((full / "pids.current").read_text())
    with Crowd(daemon, "pair", clients=16) as crowd:
        event = daemon.wait_event("scale", "pair", text="could not be added", since=since)
    assert "there is no room for another process" in event["text"]
    (full / "pids.max").write_text("max")
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    assert not [one for one in daemon.events(model="pair", since=str(since)) if one["kind"] == "restart"]
