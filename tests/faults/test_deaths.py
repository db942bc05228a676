"""Processes die at any moment: no request that can be run again is lost, and the daemon goes on."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, running, wait_until

MODELS = """
[defaults]
idle_timeout_secs = 0
prepare = "off"
request_timeout_ms = 60000

[[models]]
id = "quick"
path = "quick.onnx"
replicas = 2

[[models]]
id = "steady"
path = "steady.onnx"
replicas = 2
max_batch_size = 4

[[models]]
id = "long"
path = "long.onnx"
batching = "off"

[[models]]
id = "lone"
path = "steady.onnx"
max_replicas = 1

[[models]]
id = "big"
path = "big.onnx"
idle_timeout_secs = 300
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("deaths")
    onnx_models.ident(directory / "quick.onnx")
    onnx_models.slow(directory / "steady.onnx", 500)
    onnx_models.slow(directory / "long.onnx", 100_000)
    onnx_models.heavy(directory / "big.onnx", 24)
    config = directory / "models.toml"
    config.write_text(MODELS)
    with running(directory, "--config", str(config), "--no-grpc") as daemon:
        yield daemon


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def replicas(daemon: Daemon, kind: str = "replica") -> list[int]:
    return sorted(pid for pid, role in daemon.children().items() if role == kind)


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:  # reaped just now
        return False


def assert_unhurt(crowd: Crowd) -> None:
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    assert crowd.daemon.process.poll() is None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replicas_die_at_random_moments_under_load(daemon: Daemon, seed: int) -> None:
    """C27: one of two is killed in mid-batch. Each kill is followed by answers before the next one, so no request can meet two of them."""
    random_moment = random.Random(seed)
    before = daemon.metric("wakeful_restarts_total", model="steady", cause="signal")
    with Crowd(daemon, "steady", clients=12) as crowd:
        wait_until(lambda: crowd.answered > 20, "requests are answered")
        for _ in range(5):
            kill(random_moment.choice(replicas(daemon)))
            more = crowd.answered + random_moment.randrange(30, 90)
            wait_until(lambda more=more: crowd.answered > more, "requests are answered again")
    assert_unhurt(crowd)
    wait_until(lambda: calm(daemon, "steady"), "nothing is left over")
    assert daemon.metric("wakeful_restarts_total", model="steady", cause="signal") >= before


def test_ten_kills_in_a_row(daemon: Daemon) -> None:
    """C27: whatever is alive is killed ten times, and the model serves again each time."""
    before = daemon.events()[-1]["seq"]
    for round_ in range(10):
        status, body = daemon.infer("quick", "x", [round_, 1, 2, 3], [1, 4])
        assert status == 200, body
        assert body["outputs"][0]["data"] == [round_, 1, 2, 3]
        for pid in replicas(daemon):
            kill(pid)
    status, body = daemon.infer("quick", "x", [10, 1, 2, 3], [1, 4])
    assert (status, body["outputs"][0]["data"]) == (200, [10, 1, 2, 3])
    restarts = [event for event in daemon.events(since=str(before), model="quick") if event["kind"] == "restart"]
    assert restarts
    assert all(event["figures"]["cause"] == "signal" and "SIGKILL" in event["text"] for event in restarts)
    assert daemon.metric("wakeful_restarts_total", model="quick", cause="signal") >= len(restarts)
    wait_until(lambda: calm(daemon, "quick"), "nothing is left over")


def test_the_nursery_dies_under_load_and_replicas_live_on(daemon: Daemon) -> None:
    since = daemon.events()[-1]["seq"]
    with Crowd(daemon, "steady", clients=6) as crowd:
        wait_until(lambda: crowd.answered > 20, "requests are answered")
        alive = set(replicas(daemon))
        [nursery] = replicas(daemon, "nursery")
        kill(nursery)
        event = daemon.wait_event("restart", text="nursery", since=since)
        assert "killed by signal 9" in event["figures"]["cause"]
        more = crowd.answered + 50
        wait_until(lambda: crowd.answered > more, "requests are answered without a nursery")
        wait_until(lambda: nursery not in daemon.children(), "the old one is reaped")
        assert alive <= set(daemon.children())
    assert_unhurt(crowd)
    assert daemon.call("POST", "/v2/repository/models/quick/unload")[0] == 200
    assert daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200  # forked by the new one


def test_nursery_and_replicas_die_together(daemon: Daemon) -> None:
    """C27: both replicas in mid-batch, and who could start others."""
    with Crowd(daemon, "steady", clients=6) as crowd:
        for _ in range(2):
            more = crowd.answered + 20
            wait_until(lambda more=more: crowd.answered > more, "requests are answered")
            for pid in daemon.children():
                kill(pid)
        more = crowd.answered + 20
        wait_until(lambda: crowd.answered > more, "requests are answered again")
    assert_unhurt(crowd)
    wait_until(lambda: len(replicas(daemon, "nursery")) == 1, "there is a nursery again")


def test_a_nursery_that_dies_again_and_again_loses_no_request(daemon: Daemon) -> None:
    """Each death before it is awake makes the pause before the next one longer; who waits for a process waits for that."""
    assert daemon.call("POST", "/v2/repository/models/quick/unload")[0] == 200
    killed: set[int] = set()
    with Crowd(daemon, "quick", clients=2, requests=1) as crowd:
        while len(killed) < 4:
            for pid in set(replicas(daemon, "nursery")) - killed:
                kill(pid)
                killed.add(pid)
    assert_unhurt(crowd)
    assert daemon.call("POST", "/v2/repository/models/quick/unload")[0] == 200
    assert daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200  # the last one is awake


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_kill_during_the_load(daemon: Daemon, number: int) -> None:
    """C27."""
    assert daemon.call("POST", "/v2/repository/models/big/unload")[0] == 200
    since = daemon.events()[-1]["seq"]
    known = set(daemon.children())
    with Crowd(daemon, "big", clients=4, requests=3, width=512, rows=1) as crowd:
        wait_until(lambda: set(daemon.children()) - known, "a process has begun to load")
        for pid in set(daemon.children()) - known:
            kill(pid, number)
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    daemon.wait_event("load", "big", since=since)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_kill_during_the_unload(daemon: Daemon, number: int) -> None:
    assert daemon.infer("lone", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    known = set(replicas(daemon))
    unload = threading.Thread(target=daemon.call, args=("POST", "/v2/repository/models/lone/unload"))
    with Crowd(daemon, "lone", clients=4, requests=20) as crowd:
        wait_until(lambda: crowd.answered > 8, "requests are answered")
        unload.start()
        for pid in known:
            kill(pid, number)
    unload.join(60)
    assert not unload.is_alive()
    assert_unhurt(crowd)


def test_a_model_without_replicas_is_not_ready(daemon: Daemon) -> None:
    """C27: health tells of it at once, and the model comes back."""
    assert daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    assert daemon.call("GET", "/v2/models/quick/ready")[0] == 200
    since = daemon.events()[-1]["seq"]
    for pid in replicas(daemon):
        kill(pid)
    daemon.wait_event("restart", "quick", since=since)
    wait_until(lambda: daemon.metric("wakeful_replicas", model="quick", state="ready") == 0, "no replica of it is left")
    assert daemon.call("GET", "/v2/models/quick/ready")[0] == 503
    assert daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200  # a request brings it back
    assert daemon.call("GET", "/v2/models/quick/ready")[0] == 200


def burnt(daemon: Daemon) -> float:
    """Processor time of all replicas that are there, in seconds."""
    total = 0.0
    for pid in replicas(daemon):
        with suppress(psutil.NoSuchProcess):
            total += psutil.Process(pid).cpu_times().user
    return total


def test_a_request_that_takes_every_replica_down_fails_alone(daemon: Daemon) -> None:
    """C26: two deaths are enough evidence: it is refused, and what shared its batch is answered."""
    since = daemon.events()[-1]["seq"]
    answers: list[tuple[int, object]] = []
    thread = threading.Thread(target=lambda: answers.append(daemon.infer("long", "x", [1, 2, 3, 4], [1, 4])))
    thread.start()
    for count in (1, 2):
        wait_until(lambda: daemon.metric("wakeful_replicas", model="long", state="ready") == 1, "it runs")
        wait_until(lambda count=count: daemon.metric("wakeful_queue_seconds_count", model="long") == count, "its run was handed over")
        before = burnt(daemon)
        wait_until(lambda before=before: burnt(daemon) > before + 0.05, "and has begun")
        for pid in replicas(daemon):
            kill(pid)
        daemon.wait_event("restart", "long", since=since)
        since = daemon.events()[-1]["seq"]
    thread.join(60)
    [(status, body)] = answers
    assert status == 500
    assert "SIGKILL" in str(body)
    assert "2 times while it ran this request" in str(body)
    assert "with x FP32 [1, 4], digest" in daemon.wait_event("blame", "long")["text"]
    assert daemon.infer("quick", "x", [1, 2, 3, 4], [1, 4])[0] == 200


def test_no_zombie_is_left(daemon: Daemon) -> None:
    """Whatever was killed, forked twice or adopted has been reaped by somebody."""

    wait_until(lambda: not any(zombie(pid) for pid in daemon.children()), "all dead children are reaped")
