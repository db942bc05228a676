"""Loads that fail, and crowds that wait for one load."""

import http.client
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, frozen, running, wait_until

MODELS = """
[defaults]
prepare = "off"
idle_timeout_secs = 0

[[models]]
id = "broken"
path = "broken.onnx"

[[models]]
id = "broken-pinned"
path = "broken-pinned.onnx"
pinned = true

[[models]]
id = "herd"
path = "herd.onnx"

[[models]]
id = "impatient"
path = "impatient.onnx"

[[models]]
id = "deferred"
path = "deferred.onnx"

[[models]]
id = "growing"
path = "growing.onnx"
threads = 2
max_replicas = 2
autoscale_queue_threshold = 2

[[models]]
id = "limited"
path = "limited.onnx"
queue_limit = 10

[[models]]
id = "slow-to-load"
path = "huge.onnx"
load_timeout_secs = 0.02
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("loading")
    whole = onnx_models.weighty(directory / "whole.onnx", 4).read_bytes()
    for name in ("broken", "broken-pinned"):
        (directory / f"{name}.onnx").write_bytes(whole[: len(whole) // 2])
    for name in ("herd", "impatient", "limited"):
        onnx_models.weighty(directory / f"{name}.onnx", 48)
    onnx_models.ident(directory / "deferred.onnx")
    onnx_models.slow(directory / "growing.onnx", 500)
    onnx_models.weighty(directory / "huge.onnx", 300)
    (directory / "models.toml").write_text(MODELS)
    return directory


@pytest.fixture(scope="module")
def daemon(directory: Path) -> Iterator[Daemon]:
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


def attempts(daemon: Daemon, model: str) -> int:
    """Loads that were tried and failed."""
    return sum("load failed" in event["text"] for event in daemon.events(model=model) if event["kind"] == "refuse")


def refusal(daemon: Daemon, model: str) -> tuple[int, str, int]:
    """Status, reason and Retry-After of a request."""
    connection = http.client.HTTPConnection(daemon.host, daemon.port, timeout=60)
    body = '{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
    connection.request("POST", f"/v2/models/{model}/infer", body)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, int(answer.headers.get("Retry-After", "0"))


def resident(daemon: Daemon) -> int:
    """Bytes that the daemon itself holds."""
    return int(Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_truncated_file_is_refused_with_the_reason_and_costs_one_load_a_pause(daemon: Daemon) -> None:
    """C18: attempts follow the pauses, whatever the number of requests, and neither memory nor a process is left of them."""
    status, text, pause = refusal(daemon, "broken")
    assert (status, pause) == (503, 1)
    assert "broken.onnx is not a readable ONNX file" in text
    before = resident(daemon)
    waits = set()
    while attempts(daemon, "broken") < 3:
        status, text, pause = refusal(daemon, "broken")
        assert status == 503
        assert "broken.onnx is not a readable ONNX file" in text
        waits.add(pause)
    assert waits <= {1, 2, 4}
    failures = [event["text"] for event in daemon.events(model="broken") if "load failed" in event["text"]]
    assert [text.partition("not tried again for ")[2].split("  ")[0] for text in failures] == ["1.0 s", "2.0 s", "4.0 s"]
    assert daemon.metric("wakeful_requests_total", model="broken", outcome="unavailable") > 10  # in between they cost nothing
    assert resident(daemon) < before + 8_000_000
    wait_until(lambda: list(daemon.children().values()) == ["nursery"], "no process is left")
    assert daemon.call("GET", "/v2/models/broken/ready")[0] == 503
    assert "not a readable ONNX file" in str(daemon.call("POST", "/v2/repository/index")[1])


def test_a_repaired_file_is_noticed_at_once(daemon: Daemon, directory: Path) -> None:
    """C18: giving up is never for ever."""
    while attempts(daemon, "broken") < 3:
        refusal(daemon, "broken")
    tries = attempts(daemon, "broken")
    whole = (directory / "whole.onnx").read_bytes()
    (directory / "new.onnx").write_bytes(whole)
    (directory / "new.onnx").rename(directory / "broken.onnx")
    status, body = daemon.infer("broken", "x", [1, 2, 3, 4], [1, 4])
    assert (status, body["outputs"][0]["data"]) == (200, [1, 2, 3, 4])
    assert attempts(daemon, "broken") == tries


def test_a_further_replica_that_does_not_load_hurts_nobody(daemon: Daemon, directory: Path) -> None:
    """C18: two threads, so that the second replica is no copy and meets the file that was broken since; the first one answers everything."""
    assert daemon.infer("growing", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    (directory / "cut.onnx").write_bytes((directory / "growing.onnx").read_bytes()[:100])
    (directory / "cut.onnx").rename(directory / "growing.onnx")
    with Crowd(daemon, "growing", clients=16) as crowd:
        event = daemon.wait_event("scale", "growing", text="could not be added")
        more = crowd.answered + 50
        wait_until(lambda: crowd.answered > more, "requests are answered all the same")
    assert "not a readable ONNX file" in event["text"]
    assert event["text"].endswith("going on with 1")
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    assert daemon.call("GET", "/v2/models/growing/ready")[0] == 200
    assert attempts(daemon, "growing") == 0  # of the model; only its growth backs off
    assert daemon.call("POST", "/v2/repository/models/growing/unload")[0] == 200


def test_a_pinned_model_that_does_not_load_stops_nobody_and_comes_when_repaired(daemon: Daemon, directory: Path) -> None:
    daemon.wait_event("refuse", "broken-pinned")
    assert daemon.infer("herd", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    (directory / "broken-pinned.onnx").write_bytes((directory / "whole.onnx").read_bytes())
    daemon.wait_event("load", "broken-pinned")  # at its next try, without a request
    assert daemon.call("POST", "/v2/repository/models/herd/unload")[0] == 200


def test_a_cold_start_herd_causes_one_load(daemon: Daemon) -> None:
    """C19: fifty requests, an explicit load and a herd of load calls."""
    loads = daemon.metric("wakeful_load_seconds_count", model="herd")
    callers = [threading.Thread(target=daemon.call, args=("POST", "/v2/repository/models/herd/load")) for _ in range(5)]
    for caller in callers:
        caller.start()
    with Crowd(daemon, "herd", clients=50, requests=1) as crowd:
        pass
    for caller in callers:
        caller.join(60)
    assert crowd.wrong == []
    assert crowd.statuses == {200: 50}
    firsts = [event for event in daemon.events(model="herd") if event["kind"] == "load" and event["figures"]["how"] != "copied from a live replica"]
    assert len(firsts) == loads + 1
    wait_until(lambda: calm(daemon, "herd"), "nothing is left over")


def test_callers_that_leave_do_not_end_the_load(daemon: Daemon) -> None:
    """C19: not even when all of them have left."""
    for _ in range(20):
        caller = socket.create_connection((daemon.host, daemon.port))
        body = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
        caller.sendall(b"POST /v2/models/impatient/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        caller.close()
    daemon.wait_event("load", "impatient")
    assert daemon.call("GET", "/v2/models/impatient/ready")[0] == 200

    def settled() -> float:
        return sum(daemon.metric("wakeful_requests_total", model="impatient", outcome=outcome) for outcome in ("left", "ok"))

    wait_until(lambda: settled() == 20, "each is counted: as left, or as answered where the load was quicker than the news")
    assert len([event for event in daemon.events(model="impatient") if event["kind"] == "load"]) == 1
    assert daemon.infer("impatient", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    wait_until(lambda: calm(daemon, "impatient"), "nothing is left over")


def test_a_load_outlasts_the_deadlines_of_those_who_asked_for_it(daemon: Daemon) -> None:
    """C19 and C23: the time of the load counts toward each caller's own deadline; it is one load all the same, for those who can wait."""
    with ExitStack() as crowds, frozen(daemon.nursery()):
        crowd = crowds.enter_context(Crowd(daemon, "deferred", clients=8, requests=1))
        wait_until(lambda: daemon.metric("wakeful_queue_requests", model="deferred") == 8, "they wait for the load")
        for _ in range(20):
            status, body = daemon.infer("deferred", "x", [1, 2, 3, 4], [1, 4], parameters={"timeout": 20_000})
            assert status == 504, body
        assert crowd.statuses == {}
    assert crowd.wrong == []
    assert crowd.statuses == {200: 8}
    assert daemon.infer("deferred", "x", [1, 2, 3, 4], [1, 4], parameters={"timeout": 20_000_000})[0] == 200
    assert len([event for event in daemon.events(model="deferred") if event["kind"] == "load"]) == 1


def test_a_load_that_an_unload_overtakes_is_refused_and_a_later_one_wakes_the_model_again(daemon: Daemon) -> None:
    """Nobody who asked for the model waits for a load that will not come."""
    assert daemon.call("POST", "/v2/repository/models/herd/unload")[0] == 200
    answers = []
    since = daemon.events()[-1]["seq"]
    caller = threading.Thread(target=lambda: answers.append(daemon.call("POST", "/v2/repository/models/herd/load")))
    caller.start()
    wait_until(lambda: daemon.metric("wakeful_replicas", model="herd", state="starting") or answers, "the load has begun")
    assert daemon.call("POST", "/v2/repository/models/herd/unload")[0] == 200
    caller.join(60)
    (status, body), *_ = answers
    if not any(event["kind"] == "load" for event in daemon.events(model="herd", since=str(since))):  # else it was ready before the unload came
        assert (status, body) == (503, {"error": "model herd was put to sleep before it was ready"})
    with Crowd(daemon, "herd", clients=4):
        leaving = threading.Thread(target=daemon.call, args=("POST", "/v2/repository/models/herd/unload"))
        leaving.start()
        assert daemon.call("POST", "/v2/repository/models/herd/load")[0] in (200, 503)  # before or after the unload
        leaving.join(60)
    assert daemon.call("POST", "/v2/repository/models/herd/load")[0] == 200


def test_a_full_queue_is_told_at_once_while_the_model_loads(daemon: Daemon) -> None:
    """C23: what is over the limit need not wait for the load to be refused; what was accepted is answered."""
    with ExitStack() as crowds, frozen(daemon.nursery()):
        crowd = crowds.enter_context(Crowd(daemon, "limited", clients=40, requests=1))
        wait_until(lambda: crowd.statuses.total() >= 30, "those above the limit have been told")
    assert set(crowd.statuses) == {200, 429}
    assert crowd.answered >= 10
    assert all("10 requests waiting, its queue_limit" in error for error in crowd.errors)


def test_a_load_that_takes_too_long_has_failed(daemon: Daemon) -> None:
    """C23: whoever waits for it is told why, and when to come again."""
    status, text, pause = refusal(daemon, "slow-to-load")
    assert status == 503
    assert "load_timeout_secs" in text
    assert pause >= 1
    wait_until(lambda: daemon.metric("wakeful_replicas", model="slow-to-load", state="starting") == 0, "it was ended")
    assert daemon.metric("wakeful_resident_bytes", model="slow-to-load") == 0
    wait_until(lambda: calm(daemon, "slow-to-load"), "nothing is left over")
