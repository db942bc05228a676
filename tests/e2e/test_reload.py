"""SIGHUP: the daemon goes over to the configuration as it is now. Nothing that was accepted is lost, and nothing is touched that is the same."""

import http.client
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import onnx_models
from tests.crowd import Crowd, ask
from tests.daemon import Daemon, running, wait_until

BEGINNING = """
[defaults]
prepare = "off"
idle_timeout_secs = 0
"""
MODEL = """
[[models]]
id = "{0}"
path = "{0}.onnx"
max_replicas = 1
"""
KEY = """
[[auth.api_keys]]
role = "admin"
key = "a key that only tests show"
"""
NEWCOMER = """
[[auth.api_keys]]
role = "admin"
key_env = "NEWCOMER"
"""


def configuration(**models: str) -> str:
    """Models by name, with lines of their own."""
    return BEGINNING + "".join(MODEL.format(name) + lines + "\n" for name, lines in models.items())


class Reloading:
    """A daemon and its configuration file."""

    def __init__(self, daemon: Daemon, config: Path) -> None:
        self.daemon, self.config = daemon, config

    def reload(self, text: str, code: str = "reloaded") -> None:
        """Write the file anew, send the signal, and wait until the daemon says what came of it."""
        self.config.write_text(text)
        seen = max(event["seq"] for event in self.daemon.events())
        self.daemon.process.send_signal(signal.SIGHUP)
        saying = {"reloaded": "the configuration was applied", "not_reloaded": "nothing has changed"}[code]
        self.daemon.wait_event("config", text=saying, since=seen)

    def max_batch_size(self, model: str) -> int:
        (row,) = [row for row in self.daemon.call("GET", "/v1/models")[1] if row["id"] == model]
        return int(row["max_batch_size"])

    def loads(self, model: str) -> int:
        return sum(event["model"] == model for event in self.daemon.events() if event["kind"] == "load")


@pytest.fixture
def reloading(tmp_path: Path) -> Iterator[Reloading]:
    for name in ("first", "second", "third"):
        onnx_models.slow(tmp_path / f"{name}.onnx", 2000)
    onnx_models.slow(tmp_path / "endless.onnx", 50_000_000)
    config = tmp_path / "models.toml"
    config.write_text(configuration(first="", second=""))
    with running(tmp_path / "daemon", "--config", str(config), "--no-grpc", env={"NEWCOMER": "a key that only tests show"}) as daemon:
        yield Reloading(daemon, config)


def infer(daemon: Daemon, model: str) -> int:
    return daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])[0]


def test_only_what_has_changed_is_touched(reloading: Reloading) -> None:
    daemon = reloading.daemon
    assert {infer(daemon, model) for model in ("first", "second")} == {200}
    reloading.reload(configuration(first="max_batch_size = 3", second="", third=""))
    assert {infer(daemon, model) for model in ("first", "second", "third")} == {200}
    assert reloading.max_batch_size("first") == 3
    assert [reloading.loads(model) for model in ("first", "second", "third")] == [2, 1, 1]
    assert "max_batch_size" in daemon.wait_event("config", "first", text="have changed")["text"]
    reloading.reload(configuration(second="", third=""))
    assert infer(daemon, "first") == 404
    assert infer(daemon, "second") == 200
    assert reloading.loads("second") == 1


def test_a_crowd_does_not_notice(reloading: Reloading) -> None:
    """C45: every request is answered, though the model under it is exchanged again and again."""
    with Crowd(reloading.daemon, "first", clients=16) as crowd:
        for size in (2, 3, 4, 5, 6):
            before = crowd.answered
            wait_until(lambda before=before: crowd.answered > before + 30, "requests are answered")
            reloading.reload(configuration(first=f"max_batch_size = {size}", second=""))
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}
    assert reloading.loads("first") == 6


def test_many_changes_at_once_are_few_reloads(reloading: Reloading) -> None:
    """C45: twenty saves within a second, half of them broken in the middle."""
    daemon, config = reloading.daemon, reloading.config
    with Crowd(daemon, "first", clients=8) as crowd:
        wait_until(lambda: crowd.answered > 30, "requests are answered")
        for size in range(1, 21):
            for text in ("[[models]]\nid = ", configuration(first=f"max_batch_size = {size}", second="")):
                config.with_suffix(".new").write_text(text)
                config.with_suffix(".new").rename(config)
                daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: reloading.max_batch_size("first") == 20, "the last one counts")
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}
    assert reloading.loads("second") == 0


def test_requests_larger_than_a_run_are_answered_too(reloading: Reloading) -> None:
    """Their parts wait in the model that goes, and the rest of them follows in the one that comes."""
    with Crowd(reloading.daemon, "first", clients=4, rows=40) as crowd:
        for size in (7, 5, 3):
            before = crowd.answered
            wait_until(lambda before=before: crowd.answered > before + 4, "requests are answered")
            reloading.reload(configuration(first=f"max_batch_size = {size}", second=""))
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}


def test_who_waits_for_a_removed_model_is_told_so(reloading: Reloading) -> None:
    with Crowd(reloading.daemon, "first", clients=16) as crowd:
        wait_until(lambda: crowd.answered > 30, "requests are answered")
        reloading.reload(configuration(second=""))
        wait_until(lambda: 404 in crowd.statuses, "it is gone")
    assert crowd.wrong == []
    assert set(crowd.statuses) <= {200, 503, 404}


def test_a_wrong_file_changes_nothing_and_the_next_right_one_is_taken(reloading: Reloading) -> None:
    """C45"""
    daemon = reloading.daemon
    assert infer(daemon, "first") == 200
    reloading.reload(configuration(first="max_batch_size = 0", nowhere=""), "not_reloaded")
    assert "max_batch_size" in daemon.wait_event("config", text="out-of-range")["text"]
    assert "nowhere.onnx does not exist" in daemon.log
    reloading.reload("this is no TOML", "not_reloaded")
    assert infer(daemon, "first") == 200
    assert reloading.loads("first") == 1
    reloading.reload(configuration(first="max_batch_size = 2"))
    assert reloading.max_batch_size("first") == 2


def test_a_model_that_is_loading_is_exchanged_too(reloading: Reloading) -> None:
    """What waits for it is answered by the new one."""
    with Crowd(reloading.daemon, "first", clients=4) as crowd:
        reloading.reload(configuration(first="max_batch_size = 2", second=""))
        wait_until(lambda: crowd.answered > 8, "requests are answered")
    assert set(crowd.statuses) == {200}


def test_pinned_models_are_loaded_at_once(reloading: Reloading) -> None:
    reloading.reload(configuration(first="pinned = true", second="", third="pinned = true"))
    for model in ("first", "third"):
        wait_until(lambda model=model: reloading.loads(model) == 1, f"{model} is loaded")


def test_keys_are_needed_from_then_on_also_on_connections_that_are_open(reloading: Reloading) -> None:
    daemon = reloading.daemon
    with closing(http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)) as kept:
        assert ask(kept, "first", [1, 2, 3, 4], [1, 4])[0] == 200
        reloading.config.write_text(configuration(first="") + KEY)
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "callers need other keys" in daemon.log, "it is read")
        assert ask(kept, "first", [1, 2, 3, 4], [1, 4])[0] == 401


def test_a_variable_that_comes_to_hold_a_key_is_kept_from_nurseries_to_come(reloading: Reloading) -> None:
    daemon = reloading.daemon
    nursery = daemon.nursery()
    assert b"NEWCOMER=" in Path(f"/proc/{nursery}/environ").read_bytes()
    reloading.config.write_text(configuration(first="", second="") + NEWCOMER)
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "have seen NEWCOMER" in daemon.log, "it is told")
    os.kill(nursery, signal.SIGKILL)

    def another() -> bool:
        """Until it has begun, a new process shows what the daemon has."""
        others = [pid for pid, role in daemon.children().items() if role == "nursery" and pid != nursery]
        return any(b"OMP_NUM_THREADS=" in (given := Path(f"/proc/{pid}/environ").read_bytes()) and b"NEWCOMER=" not in given for pid in others)

    wait_until(another, "one begins that has not seen it")


def test_what_takes_a_restart_is_told(reloading: Reloading) -> None:
    reloading.reload(configuration(first="", second="") + "\n[server]\nkeep_alive_secs = 7\n")
    assert "takes a restart" in reloading.daemon.wait_event("config", text="keep_alive_secs")["text"]


def test_it_stops_while_a_changed_model_finishes_its_work(reloading: Reloading) -> None:
    """A reload that waits for a run must not keep the daemon from stopping."""
    daemon = reloading.daemon
    reloading.reload(configuration(first="", endless=""))
    with Crowd(daemon, "endless", clients=1):
        wait_until(lambda: daemon.metric("wakeful_queue_seconds_count", model="endless") == 1, "it runs")
        reloading.config.write_text(configuration(first=""))
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_event("config", "endless", text="removed")
        assert daemon.stop() == 1
