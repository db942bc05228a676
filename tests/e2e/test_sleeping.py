"""After a burst silence brings everything back to nothing; what is not traffic neither wakes a model nor keeps it awake."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, frozen, running, wait_until

MODELS = """
[defaults]
prepare = "off"
batching = "off"
autoscale_queue_threshold = 2

[[models]]
id = "seed"
path = "slow.onnx"
idle_timeout_secs = 10
max_replicas = 4

[[models]]
id = "watched"
path = "ident.onnx"
idle_timeout_secs = 2

[[models]]
id = "untouched"
path = "ident.onnx"
idle_timeout_secs = 2

[[models]]
id = "long"
path = "long.onnx"
idle_timeout_secs = 0.5

[[models]]
id = "sleepless"
path = "ident.onnx"
idle_timeout_secs = 0

[[models]]
id = "pinned"
path = "ident.onnx"
idle_timeout_secs = 0.2
pinned = true

[[models]]
id = "floor"
path = "slow.onnx"
idle_timeout_secs = 0.4
min_replicas = 1
max_replicas = 3

[[models]]
id = "brief"
path = "ident.onnx"
idle_timeout_secs = 0.05

[[models]]
id = "together"
path = "ident.onnx"
idle_timeout_secs = 1
replicas = 3

[[models]]
id = "busy"
path = "ident.onnx"
idle_timeout_secs = 0
replicas = 3
request_timeout_ms = 120000
"""
LONG_ITERATIONS = 200_000
DRAIN_SECONDS = float(os.environ.get("WAKEFUL_TEST_DRAIN_SECONDS", "0"))
"""How long runs last after their replicas were told to go: 40 is longer than the shortest limit of such a wait."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("sleeping")
    onnx_models.slow(directory / "slow.onnx", 1500)
    onnx_models.slow(directory / "long.onnx", LONG_ITERATIONS)
    onnx_models.ident(directory / "ident.onnx")
    (directory / "models.toml").write_text(MODELS)
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


def events(daemon: Daemon, model: str, kind: str, since: int = 0) -> list[dict[str, Any]]:
    return [event for event in daemon.events(model=model, since=str(since)) if event["kind"] == kind]


def replicas(daemon: Daemon, model: str) -> int:
    return int(sum(daemon.metric("wakeful_replicas", model=model, state=state) for state in ("starting", "ready", "draining")))


def test_the_seeds_example_at_a_thirtieth_of_its_time(daemon: Daemon) -> None:
    """C15: four replicas after a burst: the extras go after T / 4, one by one and the highest first, the primary after T. T / 4 is long enough that
    no replica falls asleep during the burst, even on a busy machine."""
    with Crowd(daemon, "seed", clients=60, requests=2) as crowd:
        pass
    assert crowd.statuses == {200: 120}
    assert replicas(daemon, "seed") == 4
    wait_until(lambda: replicas(daemon, "seed") == 0, "all are asleep")
    unloads = events(daemon, "seed", "unload")
    assert [event["figures"]["replica"] for event in unloads] == [3, 2, 1, 0]
    assert all(event["figures"]["reason"] == "idle" for event in unloads)
    extras, primary = unloads[:-1], unloads[-1]
    silence = max(event["time"] for event in extras)
    assert primary["time"] > silence + 1  # the primary outlives them clearly: T, not T / 4
    assert daemon.metric("wakeful_unloads_total", model="seed", reason="idle") == 4
    assert daemon.metric("snoozeml_model_deallocations_total", reason="idle") >= 4
    assert daemon.metric("wakeful_resident_bytes", model="seed") == 0
    wait_until(lambda: calm(daemon, "seed"), "nothing is left over")


def slot_bytes(daemon: Daemon) -> int:
    """Memory that lies in the slots of all replicas."""
    descriptors = Path(f"/proc/{daemon.process.pid}/fd").iterdir()
    return sum(512 * fd.stat().st_blocks for fd in descriptors if "memfd:wakeful-slot" in str(fd.readlink()))


def test_what_a_large_run_leaves_behind_is_given_back_though_the_model_stays_awake(daemon: Daemon) -> None:
    rows = 400_000
    shape, data = [rows, 4], [1.5] * (4 * rows)
    before = slot_bytes(daemon)
    assert daemon.infer("sleepless", "x", data, shape)[1]["outputs"][0]["data"] == data
    assert slot_bytes(daemon) - before >= 2 * 4 * 4 * rows
    wait_until(lambda: slot_bytes(daemon) < before + 1_000_000, "the slots are empty")
    assert daemon.infer("sleepless", "x", data, shape)[1]["outputs"][0]["data"] == data
    assert replicas(daemon, "sleepless") == 1
    assert not events(daemon, "sleepless", "unload")


def test_it_wakes_again_with_the_next_request(daemon: Daemon) -> None:
    """C23: the first request after zero is held until the model is ready."""
    wait_until(lambda: replicas(daemon, "brief") == 0, "it sleeps")
    for number in range(3):
        assert daemon.infer("brief", "x", [number, 1, 2, 3], [1, 4])[1]["outputs"][0]["data"] == [number, 1, 2, 3]
        wait_until(lambda: replicas(daemon, "brief") == 0, "it sleeps again")
    assert len(events(daemon, "brief", "load")) == len(events(daemon, "brief", "unload")) == 3


def test_probes_neither_wake_a_model_nor_keep_it_awake(daemon: Daemon) -> None:
    """C17: everything that is asked about a model while it is loaded, and while it sleeps."""
    assert daemon.infer("watched", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    unloaded: list[dict[str, Any]] = []

    def poll(model: str) -> bool:
        for method, path in (
            ("GET", "/metrics"), ("GET", "/v2/health/live"), ("GET", "/v2/health/ready"), ("GET", "/health/live"), ("GET", "/health/ready"),
            ("GET", "/v2"), ("GET", f"/v2/models/{model}"), ("GET", f"/v2/models/{model}/ready"), ("GET", f"/v2/models/{model}/config"),
            ("GET", f"/v2/models/{model}/stats"), ("POST", "/v2/repository/index"), ("GET", "/v1/models"),
        ):
            assert daemon.call(method, path)[0] in (200, 503), path
        unloaded[:] = events(daemon, model, "unload")
        return bool(unloaded)

    wait_until(lambda: poll("watched"), "it sleeps though it is looked at all the time")
    assert unloaded[0]["figures"]["reason"] == "idle"
    for _ in range(5):
        poll("watched")
        poll("untouched")
    assert len(events(daemon, "watched", "load")) == 1
    assert events(daemon, "untouched", "load") == []
    status, metadata = daemon.call("GET", "/v2/models/untouched")
    assert status == 200
    assert metadata["inputs"][0]["name"] == "x"  # from a look into the file, by a process that serves nothing


def test_the_idle_clock_starts_at_the_last_completion(daemon: Daemon) -> None:
    """C21: the run is much longer than the timeout, and another request waits meanwhile.

    That a step of the host's clock changes nothing is by construction: `wakeful.clock` is the one source of time, and it is monotonic.
    """
    asked = time.time()
    with Crowd(daemon, "long", clients=2, requests=1) as crowd:
        pass
    assert crowd.statuses == {200: 2}
    unload = daemon.wait_event("unload", "long", text="idle")
    assert [event["kind"] for event in daemon.events(model="long") if event["kind"] in ("load", "unload")] == ["load", "unload"]  # one life for both
    ran = daemon.metric("wakeful_run_seconds_sum", model="long")
    assert ran > 2 * 0.5
    assert unload["time"] >= asked + ran + 0.5 - 0.01  # a rounding of clocks


def test_pinned_and_sleepless_models_and_the_floor_stay(daemon: Daemon) -> None:
    assert daemon.infer("sleepless", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    with Crowd(daemon, "floor", clients=30, requests=3) as crowd:
        pass
    assert crowd.statuses == {200: 90}
    since = daemon.events()[-1]["seq"]
    for _ in range(4):  # the seconds that this takes are many times their timeouts
        assert daemon.infer("brief", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        wait_until(lambda: replicas(daemon, "brief") == 0, "another model falls asleep")
    daemon.wait_event("unload", "brief", since=since)
    wait_until(lambda: replicas(daemon, "floor") == 1, "the extras of the one with a floor are gone")
    assert [event["figures"]["replica"] for event in events(daemon, "floor", "unload")] in ([2, 1], [1])
    for model in ("pinned", "sleepless", "floor"):
        assert replicas(daemon, model) == 1, model
    assert events(daemon, "pinned", "unload") == events(daemon, "sleepless", "unload") == []


def test_a_fixed_number_sleeps_and_wakes_together(daemon: Daemon) -> None:
    assert daemon.infer("together", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    wait_until(lambda: len(events(daemon, "together", "unload")) >= 3, "three are gone")
    assert len(events(daemon, "together", "load")) == 3
    assert replicas(daemon, "together") == 0
    assert sorted(event["figures"]["replica"] for event in events(daemon, "together", "unload")) == [0, 1, 2]


def test_an_unload_cuts_nothing_and_what_comes_meanwhile_is_served_by_the_next_life(daemon: Daemon) -> None:
    """C24: no new work from the moment of the choice; the run under way is finished; the newcomer waits and wakes the model again."""
    answers: list[int] = []

    def asking() -> threading.Thread:
        thread = threading.Thread(target=lambda: answers.append(daemon.infer("long", "x", [1, 2, 3, 4], [1, 4])[0]))
        thread.start()
        return thread

    since = daemon.events()[-1]["seq"]
    runs = daemon.metric("wakeful_queue_seconds_count", model="long")
    first = asking()
    wait_until(lambda: daemon.metric("wakeful_queue_seconds_count", model="long") == runs + 1, "it runs")
    unload = threading.Thread(target=daemon.call, args=("POST", "/v2/repository/models/long/unload"))
    unload.start()
    wait_until(lambda: daemon.metric("wakeful_replicas", model="long", state="draining") == 1, "it is told to go")
    assert answers == []
    second = asking()
    for thread in (first, second, unload):
        thread.join(60)
    assert answers == [200, 200]
    kinds = [event["kind"] for event in daemon.events(model="long", since=str(since)) if event["kind"] in ("load", "unload")]
    assert kinds[:3] == ["load", "unload", "load"]


def test_three_busy_replicas_that_are_told_to_go_finish_their_runs(daemon: Daemon) -> None:
    """C24: runs last as long as somebody waits for them, however long that is; nothing new is begun by those who go, and nothing runs twice."""
    assert daemon.infer("busy", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    wait_until(lambda: daemon.metric("wakeful_replicas", model="busy", state="ready") == 3, "three are there")
    since = daemon.events()[-1]["seq"]
    begun = daemon.metric("wakeful_queue_seconds_count", model="busy")
    with ExitStack() as crowds, frozen(*daemon.replicas()):
        first = crowds.enter_context(Crowd(daemon, "busy", clients=3, requests=1))
        wait_until(lambda: daemon.metric("wakeful_queue_seconds_count", model="busy") == begun + 3, "each has a run")
        unload = threading.Thread(target=daemon.call, args=("POST", "/v2/repository/models/busy/unload"))
        unload.start()
        wait_until(lambda: daemon.metric("wakeful_replicas", model="busy", state="draining") == 3, "they are told to go")
        second = crowds.enter_context(Crowd(daemon, "busy", clients=4, requests=1))
        wait_until(lambda: daemon.metric("wakeful_queue_requests", model="busy") == 4, "what comes now waits")
        time.sleep(DRAIN_SECONDS)
        assert first.statuses == {}
        assert events(daemon, "busy", "unload", since) == []
    unload.join(60)
    assert first.wrong == second.wrong == []
    assert (first.statuses, second.statuses) == ({200: 3}, {200: 4})
    assert [event["figures"]["reason"] for event in events(daemon, "busy", "unload", since)][:3] == ["manual"] * 3
    assert events(daemon, "busy", "restart", since) == []


def test_nothing_but_the_nursery_is_left(daemon: Daemon) -> None:
    for model in ("sleepless", "pinned", "floor", "long", "busy"):
        assert daemon.call("POST", f"/v2/repository/models/{model}/unload")[0] == 200
    wait_until(lambda: list(daemon.children().values()) == ["nursery"], "all replicas have gone")
