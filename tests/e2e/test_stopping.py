"""The daemon is told to stop: every accepted request is answered, late ones are told so, and the exit status says whether anything was cut."""

import http.client
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests import onnx_models
from tests.crowd import Crowd, ask
from tests.daemon import Daemon, frozen, running, wait_until
from tests.e2e.asking import oip, receive, send_and_see_taken, tensor

MODELS = """
[server]
shutdown_grace_secs = {grace}
lame_duck_secs = {lame_duck}

[defaults]
prepare = "off"
request_timeout_ms = 60000

[[models]]
id = "steady"
path = "steady.onnx"
max_replicas = 2

[[models]]
id = "endless"
path = "endless.onnx"
batching = "off"

[[models]]
id = "big"
path = "big.onnx"
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    onnx_models.slow(tmp_path / "steady.onnx", 2000)
    onnx_models.slow(tmp_path / "endless.onnx", 50_000_000)
    onnx_models.weighty(tmp_path / "big.onnx", 64)
    return tmp_path


def options(directory: Path, *, grace: float = 30, lame_duck: float = 0) -> list[str]:
    config = directory / "models.toml"
    config.write_text(MODELS.format(grace=grace, lame_duck=lame_duck))
    return ["--config", str(config), "--no-grpc"]


def asking(daemon: Daemon, model: str, answers: list[object]) -> threading.Thread:
    """Ask one question in a thread; what comes of it is added to `answers`."""

    def run() -> None:
        connection = http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)
        try:
            answers.append(ask(connection, model, [1, 2, 3, 4], [1, 4])[0])
        except (OSError, http.client.HTTPException) as error:
            answers.append(type(error).__name__)
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_every_accepted_request_is_answered(directory: Path, number: signal.Signals) -> None:
    """C49: a client that keeps asking gets answers until it is told to go; only then are its connections closed or refused."""
    with running(directory, *options(directory)) as daemon:
        with Crowd(daemon, "steady", clients=24) as crowd:
            wait_until(lambda: crowd.answered > 50 and len(daemon.connections()) == 24, "all are there and requests are answered")
            told = time.monotonic()
            daemon.process.send_signal(number)
            wait_until(lambda: "stopping" in daemon.log, "it has heard")
            assert daemon.process.wait(60) == 0
        assert crowd.wrong == []
        assert set(crowd.statuses) <= {200, 503, 0}
        assert sum("stopping" in error for error in crowd.errors) == crowd.statuses[503], crowd.errors[:3]
        assert all(sent > told for sent in crowd.unanswered), crowd.errors[:3]
        assert "cut off" not in daemon.log


def test_what_waits_behind_a_long_queue_is_answered_too(directory: Path) -> None:
    """C49"""
    with running(directory, *options(directory)) as daemon:
        with frozen(daemon.wake("steady")):
            callers = [send_and_see_taken(daemon, oip("steady", tensor("x", [1, 4], [number, 1, 2, 3]))) for number in range(60)]
            wait_until(lambda: daemon.metric("wakeful_queue_requests", model="steady") > 20, "they wait")
            daemon.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "stopping" in daemon.log, "it has heard")
        assert daemon.process.wait(60) == 0
        for number, caller in enumerate(callers):
            with closing(caller):
                assert receive(caller).output() == [number, 1, 2, 3]


def test_during_the_lame_duck_time_it_serves_on_without_being_ready(directory: Path) -> None:
    """C49: old connections and new ones, sleeping models too: nothing is put away before the last answer, so nobody hears of an unknown model."""
    with running(directory, *options(directory, lame_duck=60)) as daemon:
        with Crowd(daemon, "steady", clients=12) as crowd:
            wait_until(lambda: crowd.answered > 20, "requests are answered")
            assert daemon.call("GET", "/v2/health/ready")[0] == 200
            daemon.process.send_signal(signal.SIGTERM)
            wait_until(lambda: daemon.call("GET", "/v2/health/ready")[0] == 503, "it is not ready any more")
            served = crowd.answered
            assert daemon.call("GET", "/v2/health/live")[0] == 200
            for model in ("steady", "big"):
                assert daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])[0] == 200
            wait_until(lambda: crowd.answered > served + 20, "those who are there are served on")
            assert crowd.errors == []
            assert daemon.stop() == 0  # the second signal shortens the wait
        assert crowd.wrong == []
        assert set(crowd.statuses) <= {200, 503, 0}
        assert "cut off" not in daemon.log


def test_what_waits_for_a_load_is_answered_though_the_stop_comes_meanwhile(directory: Path) -> None:
    """C49: a load that somebody asked for, and a request for the same model."""
    with running(directory, *options(directory)) as daemon:
        answers: list[object] = []
        load = threading.Thread(target=lambda: answers.append(daemon.call("POST", "/v2/repository/models/big/load")[0]))
        load.start()
        wait_until(lambda: daemon.metric("wakeful_replicas", model="big", state="starting") == 1 or answers, "it loads")
        request = asking(daemon, "big", answers)
        wait_until(lambda: daemon.metric("wakeful_queue_requests", model="big") + daemon.metric("wakeful_queue_seconds_count", model="big"),
                   "the request is there")
        assert daemon.stop() == 0
        for thread in (load, request):
            thread.join(60)
        assert answers == [200, 200]


def test_a_run_that_does_not_end_is_cut_at_the_limit_and_the_status_says_so(directory: Path) -> None:
    """C49"""
    with running(directory, *options(directory, grace=1)) as daemon:
        answers: list[object] = []
        thread = asking(daemon, "endless", answers)
        wait_until(lambda: daemon.metric("wakeful_queue_seconds_count", model="endless") == 1, "it runs")
        waits = asking(daemon, "endless", answers)
        wait_until(lambda: daemon.metric("wakeful_queue_requests", model="endless") >= 1
                   or daemon.metric("wakeful_queue_seconds_count", model="endless") == 2, "another one waits behind it")
        assert daemon.stop() == 1
        thread.join(60)
        waits.join(60)
        assert answers == [503, 503]
        assert "2 requests are cut off after 1." in daemon.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_shortens_the_wait(directory: Path, number: signal.Signals) -> None:
    """C49"""
    with running(directory, *options(directory, grace=3600)) as daemon:
        answers: list[object] = []
        thread = asking(daemon, "endless", answers)
        wait_until(lambda: daemon.metric("wakeful_queue_seconds_count", model="endless") == 1, "it runs")
        daemon.process.send_signal(number)
        wait_until(lambda: "stopping" in daemon.log, "it has heard")
        assert daemon.stop(number) == 1
        thread.join(60)
        assert answers == [503]


def test_a_new_connection_is_refused_and_a_kept_one_is_closed(directory: Path) -> None:
    """C49"""
    with running(directory, *options(directory, grace=3600)) as daemon:
        kept = http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)
        assert ask(kept, "steady", [1, 2, 3, 4], [1, 4])[0] == 200
        answers: list[object] = []
        thread = asking(daemon, "endless", answers)
        wait_until(lambda: daemon.metric("wakeful_queue_seconds_count", model="endless") == 1, "it runs")
        daemon.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in daemon.log, "it has heard")
        assert kept.sock is not None
        assert kept.sock.recv(1) == b""  # an orderly end, no reset
        kept.close()
        late: list[object] = []
        asking(daemon, "steady", late).join(60)
        assert late == ["ConnectionRefusedError"]
        daemon.stop()
        thread.join(60)


def test_stopping_an_idle_daemon_takes_no_time_worth_speaking_of(directory: Path) -> None:
    """The SDK waits 5 s after SIGTERM before it kills."""
    with running(directory, *options(directory, grace=3600)) as daemon:
        assert daemon.infer("steady", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        assert daemon.stop() == 0
