"""A replica that does not answer any more: its callers are told in time, and it is replaced."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, alive, running, stopped, wait_until

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
id = "pair"
path = "ident.onnx"
replicas = 2
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("stuck")
    onnx_models.ident(directory / "ident.onnx")
    (directory / "models.toml").write_text(MODELS)
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


def learnt(daemon: Daemon, model: str) -> None:
    """Wake a model and let the daemon see how long its runs take."""
    for number in range(12):
        assert daemon.infer(model, "x", [number, 1, 2, 3], [1, 4])[0] == 200


def test_its_callers_get_504_in_time_and_it_is_killed_and_replaced(daemon: Daemon) -> None:
    """C06: the first in its run, the others in the queue behind it, and not when that run ends."""
    learnt(daemon, "alone")
    daemon.wait_event("probe", "alone")
    wait_until(lambda: len(daemon.replicas()) == 1, "its copy is gone, so there is one process to freeze")
    [frozen] = daemon.replicas()
    since = daemon.events()[-1]["seq"]
    os.kill(frozen, signal.SIGSTOP)
    with Crowd(daemon, "alone", clients=3, requests=1) as crowd:
        pass
    assert set(crowd.statuses) == {504}, crowd.errors
    assert all("deadline passed" in error for error in crowd.errors)
    assert alive(frozen)  # it might still wake
    event = daemon.wait_event("restart", "alone", since=since)
    assert event["figures"]["cause"] == "stuck"
    assert "nobody waits for it any more" in event["text"]
    wait_until(lambda: not alive(frozen), "it is gone")
    assert daemon.infer("alone", "x", [5, 1, 2, 3], [1, 4])[1]["outputs"][0]["data"] == [5, 1, 2, 3]
    assert daemon.metric("wakeful_restarts_total", model="alone", cause="stuck") == 1
    wait_until(lambda: calm(daemon, "alone"), "nothing is left over")


def test_one_that_wakes_in_time_goes_on(daemon: Daemon) -> None:
    learnt(daemon, "alone")
    [frozen] = daemon.replicas()
    restarts = daemon.metric("wakeful_restarts_total", model="alone", cause="stuck")
    with stopped(frozen):
        thread = threading.Thread(target=daemon.infer, args=("alone", "x", [1, 2, 3, 4], [1, 4]))
        thread.start()
        thread.join(30)
    assert daemon.infer("alone", "x", [6, 1, 2, 3], [1, 4])[1]["outputs"][0]["data"] == [6, 1, 2, 3]
    assert daemon.metric("wakeful_restarts_total", model="alone", cause="stuck") == restarts
    assert alive(frozen)


def test_a_sibling_takes_over_what_waits_behind_it(daemon: Daemon) -> None:
    before = set(daemon.children())
    learnt(daemon, "pair")  # the same file as above, so that no self-test's copy is among them
    wait_until(lambda: daemon.metric("wakeful_replicas", model="pair", state="ready") == 2, "two replicas are there")
    frozen = min(set(daemon.children()) - before)
    os.kill(frozen, signal.SIGSTOP)
    try:
        with Crowd(daemon, "pair", clients=8, requests=25) as crowd:
            pass
        assert crowd.wrong == []
        assert crowd.answered >= 150  # all but those in its hands when each run was cut off
        assert set(crowd.statuses) <= {200, 504}
    finally:
        os.kill(frozen, signal.SIGKILL)
