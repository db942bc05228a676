"""What /metrics has counted stays counted, whatever becomes of the model and its replicas, and every scrape tells the same."""

import math
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import onnx_models
from tests.crowd import Crowd
from tests.daemon import Daemon, running, wait_until

MODELS = """
[defaults]
prepare = "off"

[[models]]
id = "m"
path = "m.onnx"
max_batch_size = {rows}

[[models]]
id = "long"
path = "long.onnx"

[[models]]
id = "several"
path = "several.onnx"
replicas = 4
"""
CALLERS, CALLS, SCRAPES = 8, 50, 20

Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("counters")
    for name in ("m", "several"):
        onnx_models.ident(directory / f"{name}.onnx")
    onnx_models.slow(directory / "long.onnx", 10_000)
    (directory / "models.toml").write_text(MODELS.format(rows=8))
    return directory / "models.toml"


@pytest.fixture(scope="module")
def daemon(config: Path) -> Iterator[Daemon]:
    with running(config.parent / "daemon", "--config", str(config), "--no-grpc") as daemon:
        yield daemon


def scrape(daemon: Daemon) -> Page:
    """All samples that only grow."""
    families = text_string_to_metric_families(daemon.call("GET", "/metrics")[1].decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families if family.type in ("counter", "histogram") for sample in family.samples
    }


def fallen(pages: list[Page]) -> list[object]:
    """Samples that became less, or vanished."""
    return [key for before, after in pairwise(pages) for key, value in before.items() if after.get(key, -1) < value]


def answered(page: Page, model: str) -> float:
    wanted = {("model", model), ("outcome", "ok")}
    return sum(value for (name, labels), value in page.items() if name == "wakeful_requests_total" and wanted <= labels)


def ask(daemon: Daemon, model: str, times: int) -> None:
    for _ in range(times):
        assert daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])[0] == 200


def test_counts_outlive_what_they_count(daemon: Daemon, config: Path) -> None:
    """C48: ten calls, unload, load, five calls: fifteen. Then the model is given other settings, taken out and put back: fifteen and two."""
    pages = [scrape(daemon)]
    ask(daemon, "m", 10)
    pages.append(scrape(daemon))
    for verb in ("unload", "load"):
        assert daemon.call("POST", f"/v2/repository/models/m/{verb}")[0] == 200
        pages.append(scrape(daemon))
    ask(daemon, "m", 5)
    pages.append(scrape(daemon))
    assert [answered(page, "m") for page in pages] == [0, 10, 10, 10, 15]
    without = MODELS[: MODELS.index("[[models]]")] + MODELS[MODELS.index('[[models]]\nid = "long"') :]
    for text, models in ((MODELS.format(rows=4), 3), (without, 2), (MODELS.format(rows=8), 3)):
        seen = daemon.events()[-1]["seq"]
        config.write_text(text)
        daemon.process.send_signal(signal.SIGHUP)
        event = daemon.wait_event("config", text="the configuration was applied", since=seen)
        assert event["figures"]["models"] == models
        pages.append(scrape(daemon))
    ask(daemon, "m", 2)
    pages.append(scrape(daemon))
    assert answered(pages[-1], "m") == 17
    assert fallen(pages) == []


def test_several_processes_are_counted_as_one(daemon: Daemon) -> None:
    """C48: scraped all the time while four replicas work, and then again and again: never less, and in the end the same each time."""
    assert daemon.call("POST", "/v2/repository/models/several/load")[0] == 200
    wait_until(lambda: daemon.metric("wakeful_replicas", model="several", state="ready") == 4, "all replicas are there")
    with Crowd(daemon, "several", clients=CALLERS, requests=CALLS) as crowd:
        pages = [scrape(daemon) for _ in range(SCRAPES)]
    assert (crowd.answered, crowd.wrong, crowd.errors) == (CALLERS * CALLS, [], [])
    last = [scrape(daemon) for _ in range(SCRAPES)]
    assert {answered(page, "several") for page in last} == {CALLERS * CALLS}
    assert fallen(pages + last) == []


def buckets(page: Page, name: str, model: str) -> dict[float, float]:
    """Observations by the upper bound of their bucket."""
    found = {float(dict(labels)["le"]): value for (key, labels), value in page.items() if key == f"{name}_bucket" and ("model", model) in labels}
    bounds = sorted(found)
    return {bound: found[bound] - (found[bounds[at - 1]] if at else 0) for at, bound in enumerate(bounds)}


def test_short_and_long_runs_can_be_told_apart(daemon: Daemon) -> None:
    """C48: seconds from below a millisecond to beyond 40 have finite buckets; waiting, running, loading and rows are measured apart."""
    ask(daemon, "m", 10)
    ask(daemon, "long", 1)
    page = scrape(daemon)
    for name in ("wakeful_queue_seconds", "wakeful_run_seconds", "wakeful_request_seconds", "wakeful_load_seconds", "wakeful_batch_rows"):
        assert sum(buckets(page, name, "long").values()) >= 1, name
    short, long = (buckets(page, "wakeful_run_seconds", model) for model in ("m", "long"))
    assert min(bound for bound, count in short.items() if count) < min(bound for bound, count in long.items() if count) < math.inf
    bounds = sorted(long)
    assert bounds[0] <= 0.001
    assert bounds[-2] >= 60
    assert bounds[-1] == math.inf
