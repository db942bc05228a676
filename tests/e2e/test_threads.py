"""C33: threads follow the cores that there really are, and who has nothing to do takes none of them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running, wait_until
from tests.groups import child_group, inside

pytestmark = pytest.mark.alone

SMALL = ("a", "b", "c", "d")
MODELS = """
[defaults]
prepare = "off"
idle_timeout_secs = 0

[[models]]
id = "long"
path = "long.onnx"
max_replicas = 1

[[models]]
id = "pool"
path = "pool.onnx"
threads = 2

[[models]]
id = "single"
path = "pool.onnx"
threads = 1
""" + "".join(f'[[models]]\nid = "{name}"\npath = "ident.onnx"\nreplicas = 2\n' for name in SMALL)
PERIOD = 100_000
TICKS = os.sysconf("SC_CLK_TCK")
WATCHED_SECONDS = 1.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("threads")
    onnx_models.ident(directory / "ident.onnx")
    onnx_models.slow(directory / "long.onnx", 20_000)  # a lone run is long enough to be worth more than one thread
    onnx_models.slow(directory / "pool.onnx", 5)
    (directory / "models.toml").write_text(MODELS)
    return directory


@pytest.fixture(scope="module")
def daemon(files: Path) -> Iterator[Daemon]:
    with running(files, "--config", str(files / "models.toml"), "--no-grpc") as daemon:
        yield daemon


def cores(daemon: Daemon) -> int:
    (ready,) = (event for event in daemon.events() if event["kind"] == "ready")
    found: int = ready["figures"]["cores"]
    return found


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def threads_once_it_is_known(daemon: Daemon) -> int:
    """Threads of the model whose runs are long and that may have one replica only, in its second life: then it is known how long they are."""
    assert daemon.call("POST", "/v2/repository/models/long/load")[0] == 200
    daemon.wait_event("probe", "long")
    assert daemon.call("POST", "/v2/repository/models/long/unload")[0] == 200
    before = set(daemon.replicas())
    assert daemon.call("POST", "/v2/repository/models/long/load")[0] == 200
    (pid,) = set(daemon.replicas()) - before
    found = threads(pid)
    assert daemon.call("POST", "/v2/repository/models/long/unload")[0] == 200
    return found


def test_replicas_of_many_models_have_one_thread_each(daemon: Daemon) -> None:
    for name in SMALL:
        assert daemon.infer(name, "x", [1, 2, 3, 4], [1, 4])[0] == 200
        wait_until(lambda name=name: daemon.metric("wakeful_replicas", model=name, state="ready") == 2, f"two of {name} are there")
    wait_until(lambda: len(daemon.replicas()) == 2 * len(SMALL), "copies that took self-tests are gone")
    assert [threads(pid) for pid in daemon.replicas()] == [1] * 2 * len(SMALL)


def test_idle_replicas_and_their_pools_take_no_time(daemon: Daemon) -> None:
    """All processes together, over a while in which nobody asks: less than a tenth of one core, once what the last request brought is done."""
    assert daemon.infer("pool", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    daemon.wait_event("probe", "pool")
    wait_until(lambda: len(daemon.replicas()) == 2 * len(SMALL) + 1, "nothing but replicas is there")
    processes = [daemon.process.pid, *daemon.children()]
    for model in (*SMALL, "pool"):
        assert daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])[0] == 200

    def quiet() -> bool:
        taken = seconds(processes)
        time.sleep(WATCHED_SECONDS)
        return seconds(processes) - taken < 0.1 * WATCHED_SECONDS

    wait_until(quiet, "they take no time")


def test_the_pool_does_not_spin_between_runs(daemon: Daemon) -> None:
    """The same runs take about as much time of all threads together as they take of a single one; a pool that spins takes much more."""
    taken = {}
    for model, count in (("pool", 2), ("single", 1)):
        before = set(daemon.replicas())
        assert daemon.call("POST", f"/v2/repository/models/{model}/unload")[0] == 200
        assert daemon.call("POST", f"/v2/repository/models/{model}/load")[0] == 200
        (pid,) = set(daemon.replicas()) - before
        assert threads(pid) == count
        began = seconds([pid])
        for _ in range(50):
            assert daemon.infer(model, "x", [1, 2, 3, 4] * 64, [64, 4])[0] == 200
            time.sleep(0.01)
        taken[model] = seconds([pid]) - began
    assert taken["pool"] < 2 * taken["single"] + 0.1


def seconds(processes: list[int]) -> float:
    """Processor time that they have taken so far."""
    ticks = 0
    for pid in processes:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def test_a_long_run_that_may_not_be_copied_gets_all_cores(daemon: Daemon) -> None:
    assert threads_once_it_is_known(daemon) == cores(daemon) == len(os.sched_getaffinity(0))


def test_no_more_cores_than_the_quota_of_the_container(files: Path, tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core is what there is without a quota")
    with child_group("cpu") as group:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{PERIOD} {PERIOD}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(PERIOD))
        with running(tmp_path, "--config", str(files / "models.toml"), "--no-grpc", launcher=inside(group)) as daemon:
            assert cores(daemon) == 1
            assert threads_once_it_is_known(daemon) == 1
