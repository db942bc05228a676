"""A replica that does not answer any more: its callers are told in time, and it is replaced."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, alive, freeze, frozen, running, wait_until

pytestmark = pytest.mark.alone

MODELS = """
[defaults]
idle_timeout_secs = 0
prepare = "off"
request_timeout_ms = 700

[[models]]
id = "alone"
path = "ident.onnx"
max_replicas = 1

[[models]]
id = "large"
path = "large.onnx"
load_timeout_secs = 2
request_timeout_ms = 30000

[[models]]
id = "pair"
path = "ident.onnx"
replicas = 2
"""
LARGE_MB = 128


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("stuck")
    onnx_models.ident(directory / "ident.onnx")
    onnx_models.weighty(directory / "large.onnx", LARGE_MB)
    (directory / "models.toml").write_text(MODELS)
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


def loaded(daemon: Daemon, model: str) -> None:
    assert daemon.call("POST", f"/v2/repository/models/{model}/load")[0] == 200


def learnt(daemon: Daemon, model: str) -> None:
    """Wake a model, however long that takes, and let the daemon see how long its runs take."""
    loaded(daemon, model)
    for number in range(12):
        assert daemon.infer(model, "x", [number, 1, 2, 3], [1, 4])[0] == 200


def test_its_callers_get_504_in_time_and_it_is_killed_and_replaced(daemon: Daemon) -> None:
    """C06: the first in its run, the others in the queue behind it, and not when that run ends."""
    learnt(daemon, "alone")
    daemon.wait_event("probe", "alone")
    wait_until(lambda: len(daemon.replicas()) == 1, "its copy is gone, so there is one process to freeze")
    [pid] = daemon.replicas()
    since = daemon.events()[-1]["seq"]
    freeze(pid)
    with Crowd(daemon, "alone", clients=3, requests=1) as crowd:
        pass
    assert set(crowd.statuses) == {504}, crowd.errors
    assert all("deadline passed" in error for error in crowd.errors)
    assert alive(pid)  # it might still wake
    event = daemon.wait_event("restart", "alone", since=since)
    assert event["figures"]["cause"] == "stuck"
    assert "nobody waits for it any more" in event["text"]
    wait_until(lambda: not alive(pid), "it is gone")
    loaded(daemon, "alone")
    assert daemon.infer("alone", "x", [5, 1, 2, 3], [1, 4])[1]["outputs"][0]["data"] == [5, 1, 2, 3]
    assert daemon.metric("wakeful_restarts_total", model="alone", cause="stuck") == 1
    wait_until(lambda: calm(daemon, "alone"), "nothing is left over")


def test_one_that_wakes_in_time_goes_on(daemon: Daemon) -> None:
    """Its late answer goes to nobody: the next caller gets the right one."""
    learnt(daemon, "alone")
    [pid] = daemon.replicas()
    restarts = daemon.metric("wakeful_restarts_total", model="alone", cause="stuck")
    with frozen(pid):
        thread = threading.Thread(target=daemon.infer, args=("alone", "x", [1, 2, 3, 4], [1, 4]))
        thread.start()
        thread.join(30)
    assert daemon.infer("alone", "x", [6, 1, 2, 3], [1, 4])[1]["outputs"][0]["data"] == [6, 1, 2, 3]
    assert daemon.metric("wakeful_restarts_total", model="alone", cause="stuck") == restarts
    assert alive(pid)


def test_one_that_does_not_hear_that_it_is_to_end_is_ended(daemon: Daemon) -> None:
    """Frozen while it has nothing to do, so that no caller's deadline tells; whoever asks meanwhile waits for the next one, not in vain."""
    learnt(daemon, "alone")
    [pid] = daemon.replicas()
    freeze(pid)
    assert daemon.call("POST", "/v2/repository/models/alone/unload")[0] == 200
    wait_until(lambda: not alive(pid), "it is gone")
    loaded(daemon, "alone")
    assert daemon.infer("alone", "x", [7, 1, 2, 3], [1, 4])[1]["outputs"][0]["data"] == [7, 1, 2, 3]
    assert daemon.metric("wakeful_resident_bytes", model="alone") > 0
    wait_until(lambda: calm(daemon, "alone"), "nothing is left over")


def caught_loading(daemon: Daemon) -> tuple[int, threading.Thread, list[tuple[int, Any]]]:
    """A process that stands still in the middle of its load, who waits for it, and the answer to come. Where the load has been quicker than we,
    there is another one."""
    while True:
        known = set(daemon.children())
        answers: list[tuple[int, Any]] = []
        caller = threading.Thread(target=lambda answers=answers: answers.append(daemon.infer("large", "x", [1, 2, 3, 4], [1, 4])))
        caller.start()
        wait_until(lambda known=known: set(daemon.children()) - known, "a process has begun to load")
        loading = min(set(daemon.children()) - known)
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(loading)
            enough = process.memory_info().rss + LARGE_MB * 1024**2 // 8
            wait_until(lambda process=process, enough=enough: process.memory_info().rss > enough, "it reads its file")
            freeze(loading)
            if daemon.metric("wakeful_replicas", model="large", state="starting") == 1:
                return loading, caller, answers
            os.kill(loading, signal.SIGCONT)
        caller.join(60)
        assert daemon.call("POST", "/v2/repository/models/large/unload")[0] == 200
        wait_until(lambda known=known: set(daemon.children()) <= known, "it is gone")


def test_one_that_stands_still_while_it_loads_has_failed(daemon: Daemon) -> None:
    """Its callers are told at load_timeout_secs at the latest, it is ended, and the next try is another process's."""
    loading, caller, answers = caught_loading(daemon)
    caller.join(60)
    [(status, body)] = answers
    assert status == 503
    assert "load_timeout_secs" in body["error"]
    wait_until(lambda: not alive(loading), "it is gone")
    wait_until(lambda: daemon.infer("large", "x", [1, 2, 3, 4], [1, 4])[0] == 200, "the pause after the failed load is over")
    wait_until(lambda: calm(daemon, "large"), "nothing is left over")


def test_a_sibling_takes_over_what_waits_behind_it(daemon: Daemon) -> None:
    before = set(daemon.children())
    learnt(daemon, "pair")  # the same file as above, so that no self-test's copy is among them
    wait_until(lambda: daemon.metric("wakeful_replicas", model="pair", state="ready") == 2, "two replicas are there")
    pid = min(set(daemon.children()) - before)
    freeze(pid)
    try:
        with Crowd(daemon, "pair", clients=8, requests=25) as crowd:
            pass
        assert crowd.wrong == []
        assert crowd.answered >= 150  # all but those in its hands when each run was cut off
        assert set(crowd.statuses) <= {200, 504}
    finally:
        with suppress(ProcessLookupError):  # it has been ended already
            os.kill(pid, signal.SIGKILL)
