"""A budget smaller than the models registered: everybody is served, nobody goes without need, and what cannot be is said at once."""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import onnx_models
from tests.crowd import Auditor, Crowd, calm
from tests.daemon import Daemon, frozen, running, wait_until
from tests.e2e.asking import ask_together, oip, tensor

MB = 32
MIB = 1024 * 1024
GROWTH = 4 * MIB
"""What a replica may take more than was known when it was let in, before it is measured."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("memory")
    for number in range(6):
        onnx_models.weighty(directory / f"m{number}.onnx", MB)
    onnx_models.hungry(directory / "hungry.onnx")
    onnx_models.ident(directory / "ident.onnx")
    return directory


@contextmanager
def serving(files: Path, directory: Path, budget: int, models: str, **more: Any) -> Iterator[Daemon]:
    config = files / f"{directory.name}.toml"
    config.write_text(f'[defaults]\nprepare = "off"\nrequest_timeout_ms = 60000\nmemory_limit = "{budget}MiB"\n{models}')
    with running(directory, "--config", str(config), "--no-grpc", **more) as daemon:
        yield daemon


def entries(*names: str, keys: str = "") -> str:
    return "".join(f'\n[[models]]\nid = "{name}"\npath = "{name}.onnx"\n{keys}\n' for name in names)


def asked(daemon: Daemon, model: str) -> None:
    status, body = daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])
    assert (status, body.get("outputs", [{}])[0].get("data")) == (200, [1, 2, 3, 4]), body


def loaded(daemon: Daemon, model: str) -> None:
    """However long that takes: no caller's deadline counts."""
    assert daemon.call("POST", f"/v2/repository/models/{model}/load")[0] == 200


def known(daemon: Daemon, models: list[str]) -> None:
    """Let each model be loaded and measured once, so that no guess decides any more."""
    for model in models:
        loaded(daemon, model)
        asked(daemon, model)
        wait_until(lambda model=model: MB * MIB < daemon.metric("wakeful_resident_bytes", model=model) < (MB + 8) * MIB, f"{model} is measured")


def evictions(daemon: Daemon, since: int = 0) -> list[dict[str, Any]]:
    return [event for event in daemon.events(since=str(since)) if event["kind"] == "evict"]


def last(daemon: Daemon) -> int:
    number: int = daemon.events()[-1]["seq"]
    return number


@pytest.mark.parametrize("requests", [[8] * 6, [60, 6, 4, 3, 2, 1]], ids=["uniform", "skewed"])
def test_traffic_to_all_of_six_models_where_two_fit(files: Path, tmp_path: Path, requests: list[int]) -> None:
    models = [f"m{number}" for number in range(6)]
    with serving(files, tmp_path, 2 * MB + 10, entries(*models, keys="min_residency_secs = 0.05")) as daemon:
        known(daemon, models)
        since = last(daemon)
        with Auditor(daemon) as auditor, ExitStack() as stack:
            crowds = [stack.enter_context(Crowd(daemon, model, clients=2, requests=n)) for model, n in zip(models, requests, strict=True)]
        for crowd, number in zip(crowds, requests, strict=True):
            assert crowd.wrong == []
            assert crowd.statuses == {200: 2 * number}, crowd.errors[:3]
        assert 0 < auditor.most <= (2 * MB + 10) * MIB + GROWTH
        for event in evictions(daemon, since):
            assert event["figures"]["reason"] == "lru"
            assert event["figures"]["bytes"] >= 30 * MIB
            assert re.search(r"#0 -3\d MiB, lru, for m\d: needs 3\d MiB, free", event["text"]), event["text"]
        loads = [event for event in daemon.events(since=str(since)) if event["kind"] == "load" and "ready" in event["text"]]
        assert len(evictions(daemon, since)) <= len(loads)  # each newcomer needs the room of one
        assert daemon.metric("wakeful_thrashing_total") == daemon.metric("snoozeml_deallocation_thrashing_total")
        wait_until(lambda: all(calm(daemon, model) for model in models), "nothing is left over")


def test_the_least_recently_used_goes_and_nobody_else(files: Path, tmp_path: Path) -> None:
    """C30: room for three; the fourth evicts exactly one, and never a pinned one."""
    models = ["m0", "m1", "m2", "m3"]
    config = entries("m0", keys="pinned = true") + entries("m1", "m2", "m3", keys="min_residency_secs = 0")
    with serving(files, tmp_path, 3 * MB + 14, config) as daemon:
        daemon.wait_event("load", "m0")
        known(daemon, models)
        for model in ("m2", "m3", "m1", "m2"):  # in the end m3 was used least recently, but for the pinned one
            asked(daemon, model)
        since = last(daemon)
        missing = next(model for model in ("m1", "m2", "m3") if daemon.call("GET", f"/v2/models/{model}/ready")[0] == 503)
        oldest = {"m3": "m1", "m1": "m3", "m2": "m3"}[missing]
        asked(daemon, missing)
        assert [event["model"] for event in evictions(daemon, since)] == [oldest]
        assert "m0" not in {event["model"] for event in evictions(daemon)}


def test_a_busy_one_is_skipped_though_it_was_used_least_recently(files: Path, tmp_path: Path) -> None:
    """C30: exactly one goes, the idle one; that it never falls asleep by itself does not make it pinned. The busy one's run is finished."""
    models = ["m0", "m1", "m2"]
    with serving(files, tmp_path, 2 * MB + 12, entries(*models, keys="min_residency_secs = 0\nidle_timeout_secs = 0")) as daemon:
        known(daemon, models)
        for model in models:
            assert daemon.call("POST", f"/v2/repository/models/{model}/unload")[0] == 200
        asked(daemon, "m0")
        wait_until(lambda: len(daemon.replicas()) == 1, "nothing but its replica is there")
        busy = daemon.replicas()
        asked(daemon, "m1")
        since, begun = last(daemon), daemon.metric("wakeful_queue_seconds_count", model="m0")
        with ExitStack() as crowds, frozen(*busy):
            crowd = crowds.enter_context(Crowd(daemon, "m0", clients=1, requests=1))
            wait_until(lambda: daemon.metric("wakeful_queue_seconds_count", model="m0") > begun, "it runs")
            asked(daemon, "m2")
            assert [event["model"] for event in evictions(daemon, since)] == ["m1"]
        assert crowd.statuses == {200: 1}, crowd.errors
        assert not [event for event in daemon.events(model="m0", since=str(since)) if event["kind"] in ("load", "unload", "restart")]


def test_two_that_do_not_fit_together_are_served_in_turns(files: Path, tmp_path: Path) -> None:
    """C29: neither ever falls idle, and yet each gets its turn; that this is thrashing is counted and said."""
    with serving(files, tmp_path, MB + 8, entries("m0", "m1", keys="min_residency_secs = 0.3\nmax_replicas = 1")) as daemon:
        known(daemon, ["m0", "m1"])
        with Crowd(daemon, "m0", clients=3) as one, Crowd(daemon, "m1", clients=3) as other:
            for _ in range(2):
                for crowd in (one, other):
                    more = crowd.answered + 10
                    wait_until(lambda crowd=crowd, more=more: crowd.answered > more, "it has its turn", 60)
        for crowd in (one, other):
            assert crowd.wrong == []
            assert set(crowd.statuses) == {200}, crowd.errors[:3]
        assert {event["model"] for event in evictions(daemon)} == {"m0", "m1"}
        assert daemon.metric("wakeful_thrashing_total") >= 1
        assert any("thrashing" in event["text"] for event in daemon.events())


def test_what_can_never_fit_is_refused_at_once_and_nobody_is_evicted(files: Path, tmp_path: Path) -> None:
    """C30: the reason states the need and the budget."""
    onnx_models.weighty(files / "giant.onnx", 120)
    shutil.copy(files / "giant.onnx", files / "titan.onnx")
    config = entries("m0", "m1", "giant", "titan", keys="min_residency_secs = 0")
    with serving(files, tmp_path, 2 * MB + 16, config) as daemon:
        asked(daemon, "m0")
        status, body = daemon.call("POST", "/v2/repository/models/titan/load")
        assert (status, body["error"].startswith("out of memory: titan needs ")) == (503, True), body
        status, body = daemon.infer("giant", "x", [1, 2, 3, 4], [1, 4])
        assert status == 503
        assert body["error"].startswith("out of memory: giant needs ")
        assert "budget 80 MiB" in body["error"]
        status, body = daemon.call("POST", "/v1/models/giant/infer", {"inputs": {"x": {"shape": [1, 4], "data": [1, 2, 3, 4]}}})
        assert status in (400, 503)
        assert evictions(daemon) == []
        asked(daemon, "m0")
        assert len([event for event in daemon.events(model="m0") if event["kind"] == "load"]) == 1


def test_where_all_are_pinned_a_newcomer_is_refused_and_the_budget_kept(files: Path, tmp_path: Path) -> None:
    """C30."""
    config = entries("m0", keys="pinned = true") + entries("m1")
    with serving(files, tmp_path, MB + 14, config) as daemon:
        wait_until(lambda: daemon.metric("wakeful_resident_bytes", model="m0") > MB * MIB, "the pinned one is loaded")
        wait_until(lambda: daemon.metric("wakeful_resident_bytes", model="m0") < (MB + 8) * MIB, "and measured")
        status, body = daemon.infer("m1", "x", [1, 2, 3, 4], [1, 4])
        assert status == 503
        assert "out of memory" in body["error"]
        assert "m0 pinned" in body["error"]
        assert evictions(daemon) == []
        asked(daemon, "m0")


def test_a_stuck_victim_does_not_hold_up_what_fits_without_it(files: Path, tmp_path: Path) -> None:
    """C29: one runs for ever, two more may not go yet; the next waits for their room, and what is small enough is loaded meanwhile."""
    onnx_models.slow(files / "endless.onnx", 50_000_000)
    config = entries("endless", "ident", keys='batching = "off"') + entries("m0", keys="min_residency_secs = 3600")
    with serving(files, tmp_path, 2 * MB + 40, config + entries("m1", "m2", keys="min_residency_secs = 3600\nrequest_timeout_ms = 3000")) as daemon:
        for model in ("m0", "m1", "m2"):
            known(daemon, [model])
            assert daemon.call("POST", f"/v2/repository/models/{model}/unload")[0] == 200
        for model in ("m0", "m1"):
            loaded(daemon, model)
            asked(daemon, model)
        with Crowd(daemon, "endless", clients=1, requests=1):
            wait_until(lambda: daemon.metric("wakeful_queue_seconds_count", model="endless") == 1, "it runs")
            with Crowd(daemon, "m2", clients=2, requests=1) as waiting:
                wait_until(lambda: daemon.metric("wakeful_oldest_load_seconds") > 0 or waiting.statuses, "a load waits for room")
                asked(daemon, "ident")
            assert waiting.statuses == {504: 2}, waiting.errors
            daemon.process.kill()
            daemon.process.wait()


@pytest.mark.alone
def test_a_stuck_victim_is_ended_and_the_newcomer_gets_its_room(files: Path, tmp_path: Path) -> None:
    """C24 and C29: its caller is told at its own deadline; from then on nobody waits for the run, and it does not last for ever."""
    config = entries("m0", keys="min_residency_secs = 0\nrequest_timeout_ms = 1500") + entries("m1", keys="min_residency_secs = 0")
    with serving(files, tmp_path, MB + 8, config) as daemon:
        known(daemon, ["m1", "m0"])
        for _ in range(12):  # now it is known how long its runs take
            asked(daemon, "m0")
        wait_until(lambda: len(daemon.replicas()) == 1, "nothing but its replica is there")
        stuck = daemon.replicas()
        since, begun = last(daemon), daemon.metric("wakeful_queue_seconds_count", model="m0")
        with frozen(*stuck), Crowd(daemon, "m0", clients=1, requests=1) as cut_off:
            wait_until(lambda: daemon.metric("wakeful_queue_seconds_count", model="m0") > begun, "it runs")
            with Crowd(daemon, "m1", clients=2, requests=1) as waiting:
                wait_until(lambda: daemon.metric("wakeful_oldest_load_seconds") > 0 or waiting.statuses, "a load waits for room")
        assert cut_off.statuses == {504: 1}, cut_off.errors
        assert waiting.statuses == {200: 2}, waiting.errors
        assert [(event["model"], event["figures"]["reason"]) for event in evictions(daemon, since)] == [("m0", "lru")]
        loaded(daemon, "m0")
        asked(daemon, "m0")
        wait_until(lambda: all(calm(daemon, model) for model in ("m0", "m1")), "nothing is left over")


def test_a_merged_run_out_of_memory_is_made_smaller_and_the_limit_is_learnt(files: Path, tmp_path: Path) -> None:
    """C26: an idle model goes, one more try, then halves; nothing of it reaches a caller, and it does not happen again, in the next life neither.

    With the delay of ten minutes a run leaves when it is full, and not before: whoever is answered was in a run of 16 rows, or of the learnt 8.
    """
    onnx_models.greedy(files / "greedy.onnx", 8)
    keys = 'batching = "on"\nbatch_policy = "timer"\nmax_batch_size = 16\nmax_batch_delay_ms = 600000\nmax_replicas = 1'
    with serving(files, tmp_path, 512, entries("ident") + entries("greedy", keys=keys)) as daemon:
        asked(daemon, "ident")
        assert daemon.call("POST", "/v2/repository/models/greedy/load")[0] == 200

        def answered(count: int, rows: int = 1) -> bool:
            questions = [[float(100 * number + place) for place in range(4 * rows)] for number in range(count)]
            answers = ask_together(daemon, [oip("greedy", tensor("x", [rows, 4], question)) for question in questions])
            return [answer.output() for answer in answers] == questions

        def runs() -> tuple[float, float]:
            """Of eight rows at most, and all."""
            small = daemon.metric("wakeful_batch_rows_bucket", model="greedy", le="8.0")
            return small, daemon.metric("wakeful_batch_rows_count", model="greedy")

        assert answered(16)
        assert runs() == (2, 4)
        assert [(event["model"], event["figures"]["reason"]) for event in evictions(daemon)] == [("ident", "oom")]
        assert answered(8)
        assert answered(1, rows=16)
        assert daemon.call("POST", "/v2/repository/models/greedy/unload")[0] == 200
        assert answered(16)
        assert runs() == (7, 9)
        assert daemon.metric("wakeful_restarts_total", model="greedy") == 0
        asked(daemon, "ident")


def test_out_of_memory_in_a_run_fails_only_the_request_that_needs_it(files: Path, tmp_path: Path) -> None:
    """C26: bounded tries, no death, and small requests are answered right after."""
    config = entries("hungry", "ident")
    with serving(files, tmp_path, 512, config) as daemon:
        small = [4]
        assert daemon.infer("hungry", "size", small, [1], "INT64")[0] == 200
        status, body = daemon.infer("hungry", "size", [2**44], [1], "INT64")
        assert status == 503
        assert "out of memory" in body["error"]
        assert daemon.infer("hungry", "size", small, [1], "INT64")[0] == 200
        assert daemon.metric("wakeful_run_seconds_count", model="hungry") <= 4  # two good ones, and two tries at most
        assert daemon.metric("wakeful_restarts_total", model="hungry") == 0
        assert daemon.infer("ident", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        wait_until(lambda: calm(daemon, "hungry"), "nothing is left over")


def test_load_and_unload_again_and_again_leaves_no_trace_in_the_sums(files: Path, tmp_path: Path) -> None:
    """C32: the second load of the same model is not refused because the first one's memory seems to be there still."""
    with serving(files, tmp_path, MB + 8, entries("m0", "m1", keys="min_residency_secs = 0")) as daemon:
        for _ in range(3):
            for model in ("m0", "m1"):
                assert daemon.call("POST", f"/v2/repository/models/{model}/load")[0] == 200
                assert daemon.call("POST", f"/v2/repository/models/{model}/unload")[0] == 200
        assert daemon.metric("wakeful_resident_bytes", model="m0") == daemon.metric("wakeful_resident_bytes", model="m1") == 0
        assert evictions(daemon) == []
