"""A budget smaller than the models registered: everybody is served, nobody goes without need, and what cannot be is said at once."""

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, running, wait_until

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


def known(daemon: Daemon, models: list[str]) -> None:
    """Let each model be loaded and measured once, so that no guess decides any more."""
    for model in models:
        asked(daemon, model)
        wait_until(lambda model=model: MB * MIB < daemon.metric("wakeful_resident_bytes", model=model) < (MB + 8) * MIB, f"{model} is measured")


def evictions(daemon: Daemon, since: int = 0) -> list[dict[str, Any]]:
    return [event for event in daemon.events(since=str(since)) if event["kind"] == "evict"]


def last(daemon: Daemon) -> int:
    number: int = daemon.events()[-1]["seq"]
    return number


class Auditor:
    """Looks again and again whether the models hold more than the budget."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.most = 0.0

    def _look(self) -> None:
        pattern = re.compile(r'^wakeful_resident_bytes\{model="[^"]+"\} (\S+)$', re.MULTILINE)
        while not self._done.is_set():
            page = self._daemon.call("GET", "/metrics")[1].decode()
            self.most = max(self.most, sum(float(value) for value in pattern.findall(page)))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(60)


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
        assert all(calm(daemon, model) for model in models)


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
    onnx_models.weighty(files / "giant.onnx", 120)
    config = entries("m0", "m1", "giant", keys="min_residency_secs = 0")
    with serving(files, tmp_path, 2 * MB + 16, config) as daemon:
        asked(daemon, "m0")
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
        asked(daemon, "m0")
        asked(daemon, "m1")
        with Crowd(daemon, "endless", clients=1, requests=1):
            wait_until(lambda: daemon.metric("wakeful_queue_seconds_count", model="endless") == 1, "it runs")
            with Crowd(daemon, "m2", clients=2, requests=1) as waiting:
                wait_until(lambda: daemon.metric("wakeful_oldest_load_seconds") > 0, "a load waits for room")
                asked(daemon, "ident")
            assert waiting.statuses == {504: 2}, waiting.errors
            daemon.process.kill()
            daemon.process.wait()


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
