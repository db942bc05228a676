"""Bursts multiply replicas up to each ceiling, and nothing is dropped whatever ends the growth."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, frozen, running, wait_until

MODELS = """
[defaults]
prepare = "off"
idle_timeout_secs = 0
batching = "off"
autoscale_queue_threshold = 2
request_timeout_ms = 60000

[[models]]
id = "bounded"
path = "slow.onnx"
max_replicas = 4

[[models]]
id = "even"
path = "slow.onnx"
max_replicas = 4
idle_timeout_secs = 8

[[models]]
id = "hesitant"
path = "slow.onnx"
max_replicas = 3
threads = 2
request_timeout_ms = 600000

[[models]]
id = "patient"
path = "slow.onnx"
max_replicas = 4
autoscale_queue_threshold = 100

[[models]]
id = "fixed"
path = "ident.onnx"
replicas = 3

[[models]]
id = "floor"
path = "ident.onnx"
min_replicas = 2
max_replicas = 3

[[models]]
id = "turns"
path = "slow.onnx"
replicas = 3
routing_strategy = "round-robin"

[[models]]
id = "chance"
path = "slow.onnx"
max_replicas = 3
routing_strategy = "random"

[[models]]
id = "narrow"
path = "weighty.onnx"
max_replicas = 8
memory_limit = "{narrow}"
"""
WEIGHT_MB = 16


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("scaling")
    onnx_models.slow(directory / "slow.onnx", 1500)
    onnx_models.ident(directory / "ident.onnx")
    onnx_models.weighty(directory / "weighty.onnx", WEIGHT_MB)
    return directory


@pytest.fixture(scope="module")
def daemon(files: Path) -> Iterator[Daemon]:
    config = files / "models.toml"
    config.write_text(MODELS.replace("{narrow}", f"{3 * WEIGHT_MB + 16 + 2}MiB"))  # the estimate of the first, and no more than a copy or two
    with running(files, "--config", str(config), "--no-grpc") as daemon:
        yield daemon


def ready(daemon: Daemon, model: str) -> int:
    return int(daemon.metric("wakeful_replicas", model=model, state="ready"))


def texts(daemon: Daemon, model: str, kind: str) -> list[str]:
    return [event["text"] for event in daemon.events(model=model) if event["kind"] == kind]


def assert_all_answered(crowd: Crowd, count: int) -> None:
    assert crowd.wrong == []
    assert crowd.statuses == {200: count}, crowd.errors[:3]


def test_a_burst_starts_replicas_up_to_max_replicas_and_no_more(daemon: Daemon) -> None:
    with Crowd(daemon, "bounded", clients=60, requests=4) as crowd:
        pass
    assert_all_answered(crowd, 240)
    assert ready(daemon, "bounded") == 4
    steps = texts(daemon, "bounded", "scale")
    growth = [text for text in steps if text.endswith("replicas")]
    assert [text.rpartition(", ")[2] for text in growth] == ["1 -> 2 replicas", "2 -> 3 replicas", "3 -> 4 replicas"]
    assert all(text.startswith("queue ") and " > 2 on " in text for text in growth)
    assert any("4 of max_replicas 4 run" in text for text in steps)
    loads = texts(daemon, "bounded", "load")
    assert len(loads) == 4
    assert "as shipped" in loads[0]
    assert all("copied from a live replica" in text for text in loads[1:])
    assert daemon.metric("wakeful_scaling_steps_total", model="bounded", direction="up") == 3
    wait_until(lambda: calm(daemon, "bounded"), "nothing is left over")


def test_work_that_waits_moves_to_the_new_replicas(daemon: Daemon) -> None:
    """Every one of the four has run something: they were started for what had already arrived."""
    before = daemon.metric("wakeful_batch_rows_count", model="bounded")
    with Crowd(daemon, "bounded", clients=16, requests=10) as crowd:
        pass
    assert_all_answered(crowd, 160)
    assert daemon.metric("wakeful_batch_rows_count", model="bounded") == before + 160
    assert ready(daemon, "bounded") == 4


def test_an_even_load_grows_once_and_keeps_what_it_has(daemon: Daemon) -> None:
    """C15: a hundred callers at zero, and as many without a pause. Each step makes the queues shorter, and yet nothing goes before silence."""
    with Crowd(daemon, "even", clients=100) as crowd:
        daemon.wait_event("load", "even", text="#3 ready")
        more = crowd.answered + 120
        wait_until(lambda: crowd.answered > more, "all four have served for a while")
        assert texts(daemon, "even", "unload") == []
        steps = [daemon.metric("wakeful_scaling_steps_total", model="even", direction=direction) for direction in ("up", "down")]
    assert steps == [3, 0]
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    assert [text.partition(" ")[0] for text in texts(daemon, "even", "load")] == ["#0", "#1", "#2", "#3"]


def test_a_step_down_in_the_middle_of_a_step_up_ends_those_that_start(daemon: Daemon) -> None:
    """C15: two threads, so that further replicas come from the nursery, which does not answer. The one that works loses nothing."""
    wait_until(lambda: ready(daemon, "floor") == 2, "those that are there from the start are there")
    pid = daemon.wake("hesitant")
    before = set(daemon.replicas())
    unload = threading.Thread(target=daemon.call, args=("POST", "/v2/repository/models/hesitant/unload"))
    with frozen(daemon.nursery()):
        with Crowd(daemon, "hesitant", clients=16, requests=1) as crowd:
            wait_until(lambda: daemon.metric("wakeful_replicas", model="hesitant", state="starting") == 1, "another one is to start")
            unload.start()
        assert_all_answered(crowd, 16)
        unload.join(60)
        gone = [event["figures"]["replica"] for event in daemon.events(model="hesitant") if event["kind"] == "unload"]
        assert gone == [1, 0]
        wait_until(lambda: calm(daemon, "hesitant"), "nothing is left over")
    wait_until(lambda: set(daemon.replicas()) <= before - {pid}, "no process is left of either")
    assert daemon.infer("hesitant", "x", [1, 2, 3, 4], [1, 4])[0] == 200


def test_a_queue_below_the_threshold_is_no_reason(daemon: Daemon) -> None:
    with Crowd(daemon, "patient", clients=40, requests=2) as crowd:
        pass
    assert_all_answered(crowd, 80)
    assert ready(daemon, "patient") == 1
    assert texts(daemon, "patient", "scale") == []


def test_a_fixed_number_is_loaded_and_kept(daemon: Daemon) -> None:
    with Crowd(daemon, "fixed", clients=30, requests=10) as crowd:
        pass
    assert_all_answered(crowd, 300)
    wait_until(lambda: ready(daemon, "fixed") == 3, "all three are there")
    assert texts(daemon, "fixed", "scale") == []


def test_a_floor_is_loaded_at_start_without_a_request(daemon: Daemon) -> None:
    wait_until(lambda: ready(daemon, "floor") == 2, "two are there")
    assert daemon.metric("wakeful_requests_total", model="floor") == 0
    assert daemon.infer("floor", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    assert ready(daemon, "floor") == 2


@pytest.mark.parametrize("model", ["turns", "chance"])
def test_other_ways_of_routing_lose_nothing(daemon: Daemon, model: str) -> None:
    with Crowd(daemon, model, clients=24, requests=5) as crowd:
        pass
    assert_all_answered(crowd, 120)
    assert ready(daemon, model) == 3
    wait_until(lambda: calm(daemon, model), "nothing is left over")


def test_memory_ends_the_growth_and_requests_go_on(daemon: Daemon) -> None:
    with Crowd(daemon, "narrow", clients=40, requests=25) as crowd:
        pass
    assert_all_answered(crowd, 1000)
    refusals = [text for text in texts(daemon, "narrow", "scale") if "could not be added" in text]
    assert refusals
    assert all("over its memory_limit" in text and "going on with" in text for text in refusals)
    assert 1 <= ready(daemon, "narrow") < 8
    wait_until(lambda: calm(daemon, "narrow"), "nothing is left over")


def test_the_ceiling_of_the_daemon_ends_the_growth_without_a_ceiling_of_the_model(files: Path, tmp_path: Path) -> None:
    config = files / "ceiling.toml"
    config.write_text("""
        [defaults]
        prepare = "off"
        batching = "off"
        autoscale_queue_threshold = 2
        max_loaded_models = 2
        min_residency_secs = 0.1

        [[models]]
        id = "free"
        path = "slow.onnx"

        [[models]]
        id = "other"
        path = "ident.onnx"
    """)
    with running(tmp_path, "--config", str(config), "--no-grpc") as daemon:
        assert daemon.infer("other", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        with Crowd(daemon, "free", clients=40, requests=5) as crowd:
            pass
        assert_all_answered(crowd, 200)
        loaded = sum(ready(daemon, model) for model in ("free", "other"))
        assert loaded == 2
        holds = [text for text in texts(daemon, "free", "scale") if "max_loaded_models 2" in text]
        assert holds
        with Crowd(daemon, "other", clients=4, requests=20) as crowd:  # a model without replicas gets its first one by eviction
            pass
        assert_all_answered(crowd, 80)


def decided(daemon: Daemon, model: str, since: int) -> str:
    """The first verdict after number `since` but for this: while something else takes the cores, the replicas may seem to have little to do."""
    found: list[str] = []

    def seen() -> bool:
        events = [event["text"] for event in daemon.events(model=model, since=str(since)) if event["kind"] == "scale"]
        found[:] = [text for text in events if "of the replicas' time" not in text and "not measured yet" not in text]
        return bool(found)

    wait_until(seen, "it is decided how many there should be")
    return found[0]


@pytest.mark.alone
def test_without_any_ceiling_it_grows_to_the_cores_and_tries_one_more_unless_they_are_busy(files: Path, tmp_path: Path) -> None:
    config = files / "free.toml"
    config.write_text("""
        [defaults]
        prepare = "off"
        batching = "off"
        autoscale_queue_threshold = 2

        [[models]]
        id = "free"
        path = "slow.onnx"
    """)
    with running(tmp_path, "--config", str(config), "--no-grpc") as daemon:
        cores = next(event["figures"]["cores"] for event in daemon.events() if event["kind"] == "ready")
        with Crowd(daemon, "free", clients=8 * (cores + 1)) as crowd:
            full = daemon.wait_event("load", "free", text=f"#{cores - 1} ready")
            verdict = decided(daemon, "free", full["seq"])
            if "cores busy" not in verdict:
                assert f"{cores} -> {cores + 1} replicas" in verdict
                trial = daemon.wait_event("load", "free", text=f"#{cores} ready")
                verdict = decided(daemon, "free", trial["seq"])
        assert crowd.wrong == []
        assert set(crowd.statuses) == {200}
        if "cores busy" in verdict:
            assert f"{cores} cores" in verdict
        elif "is taken back" in verdict:
            assert "brought no throughput" in verdict
            gone = daemon.wait_event("unload", "free", text="no_gain")
            assert gone["figures"]["replica"] == cores
            assert daemon.metric("wakeful_unloads_total", model="free", reason="no_gain") == 1
        else:  # another load of this machine has ended meanwhile: then it may have paid
            assert f"{cores + 1} -> {cores + 2} replicas" in verdict
