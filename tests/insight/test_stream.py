"""Those who follow a real daemon."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import certificates, onnx_models
from tests.daemon import Daemon, running, wait_until
from tests.insight.following import Following, Frame
from wakeful.insight.stream import MOST_FOLLOWERS
from wakeful.insight.views import AGO, AHEAD

TIMES = {*AHEAD, *AGO, "replicas", "requests_per_second", "failures_per_second", "p50", "p99", "rows_per_run"}
"""What goes on by itself, and is told by whoever looks next."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("stream")
    models = directory / "models"
    models.mkdir()
    for name in ("a", "b"):
        onnx_models.ident(models / f"{name}.onnx")
    (models / "models.toml").write_text('[defaults]\nprepare = "off"\nidle_timeout_secs = 3600\n')
    with running(directory, "--models-dir", str(models), "--no-grpc") as daemon:
        yield daemon


def infer(daemon: Daemon, model: str) -> None:
    assert daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])[0] == 200


def ask(daemon: Daemon, path: str) -> Any:
    status, answer = daemon.call("GET", f"/wakeful/v1/{path}")
    assert status == 200, answer
    return answer


def settled(model: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in model.items() if name not in TIMES}


def test_a_picture_and_its_changes_are_the_state(daemon: Daemon) -> None:
    following = Following(daemon)
    headers = following.answer.headers
    assert (headers["content-type"], headers["x-accel-buffering"]) == ("text/event-stream", "no")
    (first,) = following.until(lambda frame: True)
    assert first.kind == "snapshot"
    assert set(first.data) == set(ask(daemon, "state"))
    models = {model["key"]: model for model in first.data["models"]}
    assert set(models) == {"a", "b"}
    before = models["a"]["done"]
    infer(daemon, "a")

    def follows(frame: Frame) -> bool:
        if frame.kind == "tick":
            for key, fields in frame.data["models"].items():
                models[key] |= fields
        return bool(models["a"]["done"] == before + 1 and models["a"]["state"] == "ready")

    frames = following.until(follows)
    assert {frame.kind for frame in frames} <= {"tick", "event"}
    assert frames[-1].data["mem"].keys() == first.data["daemon"]["memory"].keys()
    assert frames[-1].data["daemon"]["requests_per_second"] > 0
    sequence = [frame.seq for frame in (first, *frames)]
    assert sequence == sorted(sequence)
    ticks = 0

    def agrees(frame: Frame) -> bool:
        """At rest; what was measured since the last tick is told by the next."""
        nonlocal ticks
        ticks += 1
        assert ticks < 60
        (now,) = (model for model in ask(daemon, "state")["models"] if model["key"] == "a")
        return follows(frame) and settled(models["a"]) == settled(now)

    following.until(agrees)
    following.close()


def test_decisions_come_as_they_fall(daemon: Daemon) -> None:
    following = Following(daemon)
    following.until(lambda frame: frame.kind == "snapshot")
    assert daemon.call("POST", "/v1/models/b/load")[0] == 200
    assert daemon.call("POST", "/v1/models/b/unload")[0] == 200
    frames = following.until(lambda frame: frame.kind == "event" and frame.data["kind"] == "unload")
    told = [frame.data for frame in frames if frame.kind == "event"]
    assert told[-1]["reason"] == "manual"
    assert told == [event for event in ask(daemon, f"events?after={told[0]['seq'] - 1}")["events"] if event["seq"] <= told[-1]["seq"]]
    following.close()
    again = Following(daemon, headers={"Last-Event-ID": str(told[0]["seq"] - 1)})
    missed = again.until(lambda frame: frame.kind == "event" and frame.data["kind"] == "unload")
    assert [frame.data for frame in missed if frame.kind == "event"] == told
    again.close()


def test_of_one_model_alone(daemon: Daemon) -> None:
    following = Following(daemon, "?model=b")
    (first,) = following.until(lambda frame: True)
    assert [model["key"] for model in first.data["models"]] == ["b"]
    infer(daemon, "a")
    infer(daemon, "b")
    frames = following.until(lambda frame: frame.kind == "tick" and frame.data["models"].get("b", {}).get("done"))
    for frame in frames:
        assert frame.data["models"].keys() <= {"b"} if frame.kind == "tick" else frame.data["model"] == "b"
    following.close()
    assert daemon.call("GET", "/wakeful/v1/stream?model=none")[0] == 404
    assert daemon.call("HEAD", "/wakeful/v1/stream") == (200, b"")


def test_places_are_limited_and_come_back(daemon: Daemon) -> None:
    wait_until(lambda: ask(daemon, "state")["daemon"]["streams"]["open"] == 0, "nobody follows")
    followings = [Following(daemon) for _ in range(MOST_FOLLOWERS)]
    assert {following.answer.status for following in followings} == {200}
    one_more = Following(daemon)
    assert (one_more.answer.status, one_more.answer.headers["retry-after"]) == (503, "5")
    one_more.close()
    assert ask(daemon, "state")["daemon"]["streams"]["open"] == MOST_FOLLOWERS
    assert daemon.metric("wakeful_ui_streams") == MOST_FOLLOWERS
    for following in followings:
        following.until(lambda frame: frame.kind == "tick")
        following.close()
    wait_until(lambda: ask(daemon, "state")["daemon"]["streams"]["open"] == 0, "all have left")
    infer(daemon, "a")


def test_the_past_of_a_model(daemon: Daemon) -> None:
    infer(daemon, "a")
    wait_until(lambda: sum(filter(None, ask(daemon, "models/a/history")["series"]["requests"])) > 0, "the request is counted")
    for span, step, length in (("5m", 1, 300), ("1h", 10, 360), ("24h", 300, 288)):
        past = ask(daemon, f"models/a/history?span={span}")
        assert past["step"] == step
        assert {len(column) for column in past["series"].values()} == {length} == {len(past["lat"])}
        assert past["from"] < ask(daemon, "state")["time"] - (length - 1) * step + 30
        assert past["series"]["replicas"][-1] == 1
        assert past["series"]["private"][-1] > 0
    past = ask(daemon, "models/a/history")
    requests = sum(filter(None, past["series"]["requests"]))
    assert sum(sum(column or []) for column in past["lat"]) == requests
    assert past["states"][-1]["state"] == "ready"
    assert daemon.call("POST", "/v1/models/a/unload")[0] == 200
    states = ask(daemon, "models/a/history?span=24h")["states"]
    assert (states[-1]["state"], states[-1]["reason"]) == ("asleep", "m")
    assert [one["state"] for one in states[-3:]] == ["waking", "ready", "asleep"] or states[-2]["state"] == "draining"


def test_the_past_of_the_daemon(daemon: Daemon) -> None:
    infer(daemon, "b")
    wait_until(lambda: (ask(daemon, "history")["memory"].get("b") or [0])[-1] > 0, "its memory is counted")
    past = ask(daemon, "history")
    assert past["states"]["b"][-1]["state"] == "ready"
    assert past["others"] is None
    assert past["series"]["private"][-1] >= past["memory"]["b"][-1]
    assert sum(filter(None, past["series"]["requests"])) > 0
    status, answer = daemon.call("GET", "/wakeful/v1/history?span=2h")
    assert (status, answer["code"]) == (400, "invalid_input")
    assert daemon.call("GET", "/wakeful/v1/models/none/history")[0] == 404


def test_over_tls(tmp_path: Path) -> None:
    certificates.issue(tmp_path)
    context = ssl.create_default_context()
    certificates.AUTHORITY.configure_trust(context)
    with running(tmp_path, "--demo", "--no-grpc", "--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")) as daemon:
        reads = Following(daemon, context=context)
        assert reads.until(lambda frame: frame.kind == "tick")[0].kind == "snapshot"
        assert daemon.stop() == 0
        assert reads.until(lambda frame: frame.kind == "bye")[-1].data == {"reason": "stopping"}
        reads.close()


def test_the_end_is_told_and_waits_for_nobody(tmp_path: Path) -> None:
    with running(tmp_path, "--demo", "--no-grpc") as daemon:
        reads, does_not = Following(daemon), Following(daemon)
        reads.until(lambda frame: frame.kind == "tick")
        assert daemon.stop() == 0
        assert reads.until(lambda frame: frame.kind == "bye")[-1].data == {"reason": "stopping"}
        assert list(reads) == []
        assert "cut off" not in daemon.log
        assert "are being answered" not in daemon.log
        does_not.close()
