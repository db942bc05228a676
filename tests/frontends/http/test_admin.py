"""Every route of a real daemon, in both spellings."""

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import Daemon, running
from wakeful import __version__
from wakeful.telemetry.metrics import CONTENT_TYPE


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("admin"), "--demo", "--no-grpc") as daemon:
        yield daemon


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/health/live", {"status": "live"}), ("/health/ready", {"status": "ready"}),
        ("/v2/health/live", {"live": True}), ("/v2/health/ready", {"ready": True}),
    ],
)
def test_health(daemon: Daemon, path: str, answer: dict[str, Any]) -> None:
    for spelling in (path, path + "/", path.replace("/health", "//health"), path + "?x=y"):
        assert daemon.call("GET", spelling) == (200, answer)
        assert daemon.call("HEAD", spelling) == (200, b"")
    assert daemon.call("POST", path)[0] == 405


def test_index(daemon: Daemon) -> None:
    status, index = daemon.call("GET", "/")
    assert status == 200
    assert (index["name"], index["version"], index["models"]) == ("wakeful", __version__, 2)
    for path in index["routes"]:
        assert daemon.call("GET", path)[0] == 200


def test_server_metadata(daemon: Daemon) -> None:
    status, metadata = daemon.call("GET", "/v2")
    assert (status, metadata["name"], metadata["version"]) == (200, "wakeful", __version__)
    assert "binary_tensor_data" in metadata["extensions"]


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_a_model_is_described_in_its_sleep(daemon: Daemon, version: str) -> None:
    path = "/v2/models/digits" + version
    daemon.call("POST", "/v2/repository/models/digits/unload")
    status, metadata = daemon.call("GET", path)
    assert (status, metadata["name"], metadata["versions"]) == (200, "digits", ["1"])
    assert metadata["inputs"][0]["shape"] == [-1, 64]
    assert daemon.call("GET", path + "/config")[1]["name"] == "digits"
    assert daemon.call("GET", path + "/stats")[1]["model_stats"][0]["name"] == "digits"
    status, answer = daemon.call("GET", path + "/ready")
    assert (status, answer) == (503, {"error": "model digits is asleep; a request wakes it"})
    for missing in ("/v2/models/none" + version, "/v2/models/digits/versions/2"):
        for tail in ("", "/ready", "/config", "/stats"):
            assert daemon.call("GET", missing + tail)[0] == 404


@pytest.mark.parametrize(
    ("load", "unload"),
    [
        ("/v2/repository/models/digits/load", "/v2/repository/models/digits/unload"), ("/v1/models/digits/load", "/v1/models/digits/unload"),
        ("/v1/models/digits/pin", "/v1/models/digits/unload"),
    ],
)
def test_waking_and_sleeping_in_both_spellings(daemon: Daemon, load: str, unload: str) -> None:
    def states() -> tuple[int, str, str]:
        ready = daemon.call("GET", "/v2/models/digits/ready")[0]
        index = {model["name"]: model["state"] for model in daemon.call("POST", "/v2/repository/index")[1]}
        listing = {model["id"]: model["state"] for model in daemon.call("GET", "/v1/models")[1]}
        return ready, index["digits"], listing["digits"]

    assert daemon.call("POST", load)[0] == 200
    assert states() == (200, "READY", "ready")
    assert [model["name"] for model in daemon.call("POST", "/v2/repository/index", {"ready": True})[1]] == ["digits"]
    assert daemon.call("POST", "/v1/models/digits/unpin") == (200, {"model_id": "digits", "status": "unpinned", "pinned": False})
    assert daemon.call("POST", unload)[0] == 200
    assert states() == (503, "UNAVAILABLE", "idle")


def test_inference_in_both_spellings(daemon: Daemon) -> None:
    tensor = {"name": "input", "shape": [1, 4], "data": [0.0] * 4}
    oip, snooze = {"inputs": [{"datatype": "FP32"} | tensor]}, {"inputs": [tensor]}
    for path in ("/v2/models/demo-model/infer", "/v2/models/demo-model/versions/1/infer", "//v2/models/demo%2Dmodel/infer/"):
        status, answer = daemon.call("POST", path, oip)
        assert (status, answer["model_name"]) == (200, "demo-model")
    status, answer = daemon.call("POST", "/v1/models/demo-model/infer", snooze)
    assert (status, answer["model_id"]) == (200, "demo-model")
    assert daemon.call("POST", "/v2/models/demo-model/versions/2/infer", oip)[0] == 404


def test_refresh_and_upload_without_a_models_directory(daemon: Daemon) -> None:
    assert {model["id"] for model in daemon.call("POST", "/v1/models/refresh")[1]["models"]} == {"digits", "demo-model"}
    status, answer = daemon.call("POST", "/v1/models/upload", b"x")
    assert (status, "--models-dir" in answer["error"]) == (409, True)


def test_statistics_of_all(daemon: Daemon) -> None:
    assert {model["name"] for model in daemon.call("GET", "/v2/models/stats")[1]["model_stats"]} == {"digits", "demo-model"}


def test_metrics(daemon: Daemon) -> None:
    with urllib.request.urlopen(daemon.url + "/metrics") as answer:
        assert answer.headers["content-type"] == CONTENT_TYPE
        assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")
        assert b"# TYPE wakeful_requests_total counter" in answer.read()
    assert daemon.call("HEAD", "/metrics") == (200, b"")


def test_events_are_filtered(daemon: Daemon) -> None:
    daemon.call("POST", "/v1/models/demo-model/load")
    daemon.call("POST", "/v1/models/demo-model/unload")
    every = daemon.events()
    assert [event["seq"] for event in every] == list(range(1, len(every) + 1))
    assert daemon.events(since=str(every[2]["seq"]))[: len(every) - 3] == every[3:]
    assert daemon.events(limit="2")[-2:] == daemon.events()[-2:]
    assert daemon.events(limit="0") == []
    mine = daemon.events(model="demo-model")
    assert mine
    assert {event["model"] for event in mine} == {"demo-model"}
    loads = daemon.events(kind="load", model="demo-model")
    assert loads
    assert {event["kind"] for event in loads} == {"load"}
    assert daemon.events(model="none") == []
    assert all(event["text"] and isinstance(event["figures"], dict) and event["time"] > 1e9 for event in every)


@pytest.mark.parametrize("query", ["kind=loads", "since=x", "since=-1", "limit=1.5", "limit=%C2%B2", "since=99999999999999999999"])
def test_a_filter_that_is_wrong(daemon: Daemon, query: str) -> None:
    status, answer = daemon.call("GET", "/v1/events?" + query)
    assert status == 400
    assert answer["error"].startswith(query.partition("=")[0] + ": expected ")


def test_the_time_of_failures_is_not_that_of_successes(daemon: Daemon) -> None:
    before = daemon.call("GET", "/v2/models/digits/stats")[1]["model_stats"][0]["inference_stats"]
    assert daemon.call("POST", "/v2/models/digits/infer", b'{"inputs":[]}')[0] == 400
    after = daemon.call("GET", "/v2/models/digits/stats")[1]["model_stats"][0]["inference_stats"]
    assert after["success"] == before["success"]
    assert after["fail"]["count"] == before["fail"]["count"] + 1
    assert after["fail"]["ns"] > before["fail"]["ns"]
