"""The data door of a real daemon: what it shows, and that looking changes nothing."""

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running, wait_until
from wakeful import __version__

MODELS = """
[defaults]
prepare = "off"
idle_timeout_secs = 3600
[[models]]
id = "short"
path = "short.onnx"
idle_timeout_secs = 0.5
[[models]]
id = "broken"
path = "broken.onnx"
[[models]]
id = "kept"
path = "kept.onnx"
pinned = true
[[pipelines]]
id = "both"
steps = [{ model = "plain", outputs = { y = "between" } }, { model = "kept", inputs = { x = "between" } }]
"""
LOOKS = ("state", "models/short", "models/both", "events", "access", "config", "models/short/history", "history", "models/short/explain?wake=1")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("insight")
    models = directory / "models"
    models.mkdir()
    for name in ("plain", "short", "kept"):
        onnx_models.ident(models / f"{name}.onnx")
    (models / "broken.onnx").write_bytes(b"no model")
    (models / "models.toml").write_text(MODELS)
    with running(directory, "--models-dir", str(models)) as daemon:
        daemon.wait_event("load", "kept")
        yield daemon


def look(daemon: Daemon, path: str) -> Any:
    status, answer = daemon.call("GET", f"/wakeful/v1/{path}")
    assert status == 200, answer
    assert answer["wakeful"] == 1
    return answer


def shown(daemon: Daemon, key: str) -> dict[str, Any]:
    (model,) = (model for model in look(daemon, "state")["models"] if model["key"] == key)
    return dict(model)


def infer(daemon: Daemon, model: str) -> int:
    return daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])[0]


def test_the_daemon_is_shown(daemon: Daemon) -> None:
    state = look(daemon, "state")
    told = state["daemon"]
    assert (told["version"], told["pid"], told["condition"], told["url"]) == (__version__, daemon.process.pid, "ready", daemon.url)
    assert told["models"]["total"] == 4
    assert told["grpc_port"] == int(daemon.grpc.rpartition(":")[2])
    assert told["config"] == [str(daemon.directory / "models" / "models.toml")]
    assert 0 < told["memory"]["used"] < told["memory"]["budget"] <= told["memory"]["machine"]
    assert told["memory"]["source"].startswith("85 % of ")
    assert {"library": "onnx", "pid": daemon.nursery()} in told["nurseries"]
    assert state["seq"] >= state["last"]["seq"] > 0
    assert abs(state["time"] - daemon.events()[-1]["time"]) < 86_400


def test_a_model_is_shown_from_its_sleep_to_its_work(daemon: Daemon) -> None:
    before = shown(daemon, "plain")
    if before["state"] == "asleep":  # another test may have come first
        assert (before["reason"], before["replicas"], before["wakes_in"]) == ("nobody has asked for it yet", [], None)
    done = before["done"]
    assert infer(daemon, "plain") == 200
    wait_until(lambda: shown(daemon, "plain")["requests_per_second"] > 0, "the request is counted")
    model = shown(daemon, "plain")
    assert (model["state"], model["pinned"], model["done"], sum(model["lat"])) == ("ready", False, done + 1, done + 1)
    assert 0 < model["p50"] <= model["p99"]
    assert model["wakes_in"] > 0
    assert 3500 < model["sleeps_in"] <= 3600
    (replica,) = model["replicas"]
    assert replica["pid"] in daemon.replicas()
    assert replica["age_seconds"] >= 0
    assert (replica["state"], replica["copied"], replica["private_bytes"]) == ("ready", False, model["private_bytes"])
    wait_until(lambda: bool(shown(daemon, "plain")["measured"]), "its memory is measured")
    assert model["resident_bytes"] >= model["private_bytes"] > 0


def test_a_pinned_model_never_sleeps(daemon: Daemon) -> None:
    model = shown(daemon, "kept")
    assert (model["state"], model["pinned"], model["sleeps_in"], model["reason"]) == ("ready", True, None, "pinned: it stays awake")


def test_a_failed_model_says_why_and_when_again(daemon: Daemon) -> None:
    assert infer(daemon, "broken") == 503
    model = shown(daemon, "broken")
    assert model["state"] == "failed"
    assert model["error"]
    assert model["reason"] == model["error"]
    assert 0 <= model["retry_in"] <= 64
    assert model["failed"] >= 1


def test_a_pipeline_is_shown_beside_its_models(daemon: Daemon) -> None:
    asked = daemon.infer("both", "x", [1, 2, 3, 4], [1, 4])
    assert asked[0] == 200, asked
    pipeline = shown(daemon, "both")
    assert (pipeline["pipeline"], pipeline["state"], pipeline["done"]) == (True, "ready", 1)
    wait_until(lambda: shown(daemon, "both")["requests_per_second"] > 0, "it is counted")
    assert look(daemon, "models/both")["model"]["key"] == "both"


def test_one_model_with_all_that_is_known(daemon: Daemon) -> None:
    assert infer(daemon, "plain") == 200
    wait_until(lambda: sum(batch["count"] for batch in look(daemon, "models/plain")["batches"]) > 0, "runs are counted")
    told = look(daemon, "models/plain")
    assert told["model"]["key"] == "plain"
    assert told["signature"]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert {"key": "idle_timeout_secs", "value": 3600.0, "source": f"{daemon.directory}/models/models.toml:4"} in told["settings"]
    assert [one["rows"] for one in told["batches"]][-2:] == [1024, None]
    assert told["max_batch_size"] == 64
    assert {event["model"] for event in told["events"]} == {"plain"}


def test_settings_with_their_sources(daemon: Daemon) -> None:
    file = str(daemon.directory / "models" / "models.toml")
    told = look(daemon, "config")
    assert told["files"] == [file]
    settings = {one["key"]: (one["value"], one["source"]) for one in told["settings"]}
    assert settings["server.port"] == (0, "option --port")
    assert settings["defaults.prepare"] == ("off", f"{file}:3")
    assert settings["models.kept.pinned"] == (True, f"{file}:15")
    assert "models.plain.pinned" not in settings


def test_nothing_is_called_so(daemon: Daemon) -> None:
    status, answer = daemon.call("GET", "/wakeful/v1/models/none")
    assert (status, answer) == (404, {"error": "no model is called 'none'", "code": "not_found"})
    status, answer = daemon.call("GET", "/wakeful/v1/nonsense")
    assert (status, answer["code"]) == (404, "not_found")
    assert daemon.call("POST", "/wakeful/v1/state")[1]["code"] == "method_not_allowed"


def test_events_by_kind_model_and_reason(daemon: Daemon) -> None:
    assert infer(daemon, "short") == 200
    daemon.wait_event("unload", "short", text="idle")
    told = look(daemon, "events?model=short&kind=load,unload")
    assert [event["kind"] for event in told["events"]][:2] == ["load", "unload"]
    assert told["first"] == 1
    (last,) = look(daemon, "events?model=short&reason=idle&limit=1")["events"]
    assert (last["kind"], last["reason"], last["figures"]["reason"]) == ("unload", "idle", "idle")
    assert look(daemon, f"events?after={last['seq']}&model=short&reason=idle")["events"] == []
    assert look(daemon, f"events?since={last['time'] + 3600}")["events"] == []
    assert shown(daemon, "short")["reason"] == "nobody had asked for it"
    for wrong in ("kind=nonsense", "limit=-1", "after=x", "since=yesterday", "since=nan"):
        status, answer = daemon.call("GET", f"/wakeful/v1/events?{wrong}")
        assert (status, answer["code"]) == (400, "invalid_input")


def test_looking_wakes_nobody_and_keeps_nobody_awake(daemon: Daemon) -> None:
    """The idle clock runs on while every route is asked all the time."""
    since = daemon.events()[-1]["seq"]
    assert infer(daemon, "short") == 200

    def slept() -> bool:
        for path in LOOKS:
            daemon.call("GET", f"/wakeful/v1/{path}")
        daemon.call("GET", "/metrics")
        return any(event["kind"] == "unload" and event["model"] == "short" for event in daemon.events(since=str(since)))

    wait_until(slept, "the model sleeps though it is looked at")
    assert shown(daemon, "short")["state"] == "asleep"
    last = daemon.events()[-1]["seq"]
    requests = daemon.metric("wakeful_requests_total", model="short")
    for path in LOOKS:
        daemon.call("GET", f"/wakeful/v1/{path}")
    assert not [event for event in daemon.events(since=str(last)) if event["model"] == "short"]
    assert daemon.metric("wakeful_requests_total", model="short") == requests
    assert shown(daemon, "short")["done"] == requests


def test_a_browser_is_led_to_the_pages(daemon: Daemon) -> None:
    connection = http.client.HTTPConnection(daemon.host, daemon.port, timeout=30)
    connection.request("GET", "/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["location"], answer.read()) == (302, "ui/", b"")
    connection.request("GET", "/", headers={"accept": "*/*"})
    assert connection.getresponse().status == 200
    connection.close()


def test_what_a_key_allows(tmp_path: Path) -> None:
    keys = ("--api-key", "admin:head", "--api-key", "inference:hand", "--api-key", "read_only:eye")
    with running(tmp_path, "--demo", "--no-grpc", *keys) as daemon:
        def role(key: str | None) -> Any:
            return daemon.call("GET", "/wakeful/v1/access", headers={"X-API-Key": key} if key else None)[1]

        assert [role(key)["role"] for key in ("head", "hand", "eye", "foot", None)] == ["admin", "inference", "read_only", "none", "none"]
        assert not role("head")["open"]
        for path in ("state", "events", "models/digits"):
            assert daemon.call("GET", f"/wakeful/v1/{path}")[0] == 401
            assert daemon.call("GET", f"/wakeful/v1/{path}", headers={"X-API-Key": "eye"})[0] == 200
