"""Real servers from outside: start, figures of their processes, end."""

import os
import sys
import tomllib
from pathlib import Path

import pytest

from bench import models
from bench.floor import Floor
from bench.raw import Configuration, RawLimit, layouts
from bench.runs import Rejected, calls_for, drive
from bench.servers import Server, ServerFailed, Wakeful, configuration, tree, until


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKEFUL_BENCH_CACHE", str(tmp_path / "bench"))


class Idle(Server):
    """A process that starts another one and waits."""

    name = "idle"

    def start(self) -> None:
        child = "import time; time.sleep(600)"
        self.launch([sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"])
        until(lambda: len(self.pids()) == 2, "its child runs")


def test_settings_become_toml(tmp_path: Path) -> None:
    text = configuration(
        {'a"b': tmp_path}, {"replicas": 2, "prepare": "off", "pad": {"axis": 1, "value": 0.5}}, {"max_loaded_models": 3, "pinned": False},
    )
    assert tomllib.loads(text) == {
        "defaults": {"max_loaded_models": 3, "pinned": False},
        "models": [{"id": 'a"b', "path": str(tmp_path), "replicas": 2, "prepare": "off", "pad": {"axis": 1, "value": 0.5}}],
    }


def test_the_daemon_answers_is_watched_and_goes() -> None:
    model = models.tiny()
    with Wakeful({model.name: model.path}, {"replicas": 1}) as server:
        run = drive(server, calls_for(server, model), connections=2, seconds=0.3, warmup=0.1, model=model.name)
        assert run.per_second > 0
        assert run.failed == 0
        assert run.batch >= 1
        assert run.pss > 2**20
        pids = server.pids()
        assert len(pids) >= 3, "daemon, nursery and replica"
        before = server.tree_cpu()
        assert before > 0
        drive(server, calls_for(server, model, binary=True), connections=2, seconds=0.5, warmup=0)
        assert server.tree_cpu() > before
        assert [event["kind"] for event in server.events(model=model.name)]
        assert server.metric("wakeful_replicas", model=model.name) == 1
        directory = server.directory
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not directory.exists()


def test_answers_that_are_none_are_no_figures(tmp_path: Path) -> None:
    model = models.tiny()
    with Wakeful({"other": model.path}) as server, pytest.raises(Rejected, match="404"):
        drive(server, calls_for(server, model), connections=2, seconds=0.1)


def test_a_daemon_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="max_batch_sice"), Wakeful({"tiny": tmp_path / "tiny.onnx"}, {"max_batch_sice": 3}):
        pass


def test_the_floor_answers_what_it_is_told() -> None:
    model = models.tiny()
    with Floor() as floor:
        assert drive(floor, calls_for(floor, model), connections=4, seconds=0.2).failed == 0
        assert floor.call("POST", "/", {})[1]["outputs"][0]["shape"] == [1, 3]
    with Floor(100_000) as floor:
        assert len(floor.call("POST", "/", [1] * 100_000)[1]) == 100_000


def test_all_processes_of_a_tree_are_found_and_ended() -> None:
    with Idle({}) as server:
        below = tree(server.pid)
        assert below[0] == server.pid
        assert len(below) == 2
        assert os.getpid() not in below
    assert not any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in below)


def test_layouts_fill_the_cores_and_one_thread_does_not_spin() -> None:
    assert list(layouts(1)) == [(1, 1, False)]
    assert list(layouts(4)) == [(4, 1, False), (2, 2, False), (2, 2, True), (1, 4, False), (1, 4, True)]
    assert list(layouts(3)) == [(3, 1, False), (1, 3, False), (1, 3, True)]


def test_the_raw_limit_is_measured_in_processes_of_its_own() -> None:
    with RawLimit("tiny", 2) as raw:
        assert raw.rate(Configuration(2, 1, False, 8), 0.1) > 0
        assert raw.lone(1, 0.05) > 0
        tried = raw.search(0.5)
        assert {one.configuration.batch for one in tried} >= {1}
        assert str(Configuration(1, 2, True, 4)) == "1 x 2 spinning, batch 4"
