"""Why a model is as it is, of a real daemon in too little memory; and the words, with given figures."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running, wait_until
from wakeful.insight import explain, wording
from wakeful.memory.eviction import Candidate
from wakeful.memory.forecast import Forecast, Staying, Victim, in_words, passed_over, staying_of, victims_of
from wakeful.telemetry.events import Event

MIB = 1 << 20


def is_measured(daemon: Daemon, model: str) -> bool:
    return bool(daemon.call("GET", f"/wakeful/v1/models/{model}")[1]["model"]["measured"])


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Three models of which two fit."""
    directory = tmp_path_factory.mktemp("explain")
    models = directory / "models"
    models.mkdir()
    for name in ("kept", "one", "two"):
        onnx_models.weighty(models / f"{name}.onnx", 40)
    settings = '[defaults]\nprepare = "off"\nidle_timeout_secs = 3600\nmin_residency_secs = 0\n'
    (models / "models.toml").write_text(settings)
    with running(directory, "--models-dir", str(models), "--no-grpc") as daemon:  # learns how large they are
        for name in ("kept", "one", "two"):
            assert daemon.call("POST", f"/v1/models/{name}/load")[0] == 200
            wait_until(partial(is_measured, daemon, name), "its memory is measured")
    (models / "models.toml").write_text(settings + 'memory_limit = "100MiB"\n[[models]]\nid = "kept"\npath = "kept.onnx"\npinned = true\n')
    with running(directory, "--models-dir", str(models), "--no-grpc") as daemon:
        daemon.wait_event("load", "kept")
        yield daemon


def ask(daemon: Daemon, model: str, query: str = "") -> Any:
    status, answer = daemon.call("GET", f"/wakeful/v1/models/{model}/explain{query}")
    assert status == 200, answer
    return answer


def test_who_had_to_go_hears_for_whom_and_who_was_passed_over(daemon: Daemon) -> None:
    for name in ("one", "two"):
        assert daemon.call("POST", f"/v1/models/{name}/load")[0] == 200
    told = ask(daemon, "one", "?wake=1")
    event = daemon.wait_event("evict", "one")
    assert (told["state"], told["event"]["seq"], told["event"]["reason"]) == ("asleep", event["seq"], "lru")
    lines = {line["label"]: line["text"] for line in told["lines"]}
    assert lines["because"].startswith(f"evicted (event {event['seq']}) for two: needs ")
    assert "Passed over: kept (pinned)" in lines["because"]
    assert lines["hint"].startswith("to keep it awake: pinned = true, or memory_limit of ")
    assert told["text"].startswith("one is asleep since ")
    assert "A request would wake it in about " in told["text"]
    plan = told["plan"]
    assert plan["possible"]
    assert plan["measured"]
    assert [one["key"] for one in plan["evict"]] == ["two"]
    assert plan["evict"][0]["bytes"] >= plan["needs"] - plan["free"]
    assert plan["keep"] == [{"key": "kept", "text": "pinned"}]
    assert plan["text"].startswith("would wake one: needs ")
    before = daemon.events()[-1]["seq"]
    assert daemon.call("POST", "/v1/models/one/load")[0] == 200
    evicted = daemon.wait_event("evict", since=before)
    assert (evicted["model"], evicted["figures"]["bytes"]) == ("two", plan["evict"][0]["bytes"])


def test_a_plan_that_cannot_be_says_why(daemon: Daemon) -> None:
    assert daemon.call("POST", "/v1/models/two/load")[0] == 200
    assert daemon.call("POST", "/v1/models/two/pin")[0] == 200
    plan = ask(daemon, "one", "?wake=1")["plan"]
    assert not plan["possible"]
    assert plan["evict"] == []
    assert "kept pinned" in plan["text"]
    assert daemon.call("POST", "/v1/models/two/unpin")[0] == 200


def test_who_is_awake_needs_no_plan(daemon: Daemon) -> None:
    told = ask(daemon, "kept", "?wake=1")
    assert told["plan"] is None
    assert told["event"]["kind"] == "load"
    assert "It stays awake: it is pinned." in told["text"]
    assert {line["label"] for line in told["lines"]} == {"because", "memory", "replicas", "batching"}


def test_who_slept_by_itself_or_by_hand(daemon: Daemon) -> None:
    assert daemon.call("POST", "/v1/models/two/load")[0] == 200
    assert daemon.call("POST", "/v1/models/two/unload")[0] == 200
    wait_until(lambda: ask(daemon, "two")["event"] is not None, "it is told")
    told = ask(daemon, "two")
    assert told["plan"] is None
    assert told["lines"][0]["text"].startswith("put to sleep by hand (event ")


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def candidate(model: str, **fields: Any) -> Candidate:
    usual: dict[str, Any] = {
        "replica": 0, "bytes": 10 * MIB, "shared": 50 * MIB, "last_used": 50.0, "idle": True, "pinned": False, "loaded_at": 0.0,
        "min_residency": 10.0,
    }
    return Candidate(model, **usual | fields)


def test_what_would_go_and_what_would_stay() -> None:
    old = candidate("old", last_used=10.0)
    others = [candidate("pin", pinned=True, last_used=5.0), candidate("young", loaded_at=95.0, last_used=6.0), candidate("late", last_used=90.0)]
    everyone = [old, *others]
    assert victims_of([(old, "lru")], everyone, 100.0) == [Victim("old", 60 * MIB, "least recently used, idle 1m 30s")]
    assert staying_of([old], everyone, 100.0) == [
        Staying("late", "used more recently"), Staying("pin", "pinned"), Staying("young", "in its first 10 s for another 5.0 s"),
    ]
    assert passed_over([old], everyone, 100.0) == "pin (pinned), young (in its first 10 s for another 5.0 s)"
    assert passed_over([old], everyone, 100.0, most=1) == "pin (pinned), and 1 more"
    assert staying_of([], [old], 100.0) == [Staying("old", "there is room")]


def test_shared_weights_come_free_with_the_last_replica() -> None:
    first, copy = candidate("m"), candidate("m", replica=1)
    assert victims_of([(copy, "lru")], [first, copy], 100.0)[0].bytes == 10 * MIB
    assert victims_of([(copy, "lru"), (first, "lru")], [first, copy], 100.0)[0].bytes == 70 * MIB


def test_a_forecast_in_words() -> None:
    found = Forecast(
        61 * MIB, True, 22 * MIB, 512 * MIB, [Victim("resnet50", 118 * MIB, "least recently used, idle 2m 51s")],
        [Staying("fraud", "pinned"), Staying("search", "busy")], None,
    )
    assert in_words(found, "titles", 0.045).split("\n") == [
        "would wake titles: needs 61 MiB (measured), free 22 MiB of 512 MiB",
        "would evict resnet50 (118 MiB): least recently used, idle 2m 51s",
        "would keep fraud (pinned), search (busy); ready in about 45 ms",
    ]
    assert in_words(found._replace(evict=[]), "titles", None) == "would wake titles: needs 61 MiB (measured), free 22 MiB of 512 MiB"
    refused = found._replace(evict=[], refusal="fraud pinned", retry_in=4.0, measured=False)
    assert in_words(refused, "titles", None).split("\n") == [
        "cannot wake titles: needs 61 MiB (expected), free 22 MiB of 512 MiB", "because fraud pinned; in 4.0 s it could",
    ]


@pytest.mark.parametrize(
    ("state", "more", "end"),
    [
        ("asleep", {}, " A request would wake it."), ("asleep", {"wakes_in": 0.045}, " A request would wake it in about 45 ms."),
        ("failed", {"retry_in": 3.2}, " The next try may be in 4.0 s."), ("failed", {"retry_in": 0.0}, " The next request tries again."),
        ("ready", {"sleeps_in": 129.0}, " It sleeps in 2m 09s if nobody asks for it."), ("busy", {"pinned": True}, " It stays awake: it is pinned."),
        ("draining", {}, ""),
    ],
)
def test_the_first_line(state: str, more: dict[str, Any], end: str) -> None:
    view = {"key": "m", "state": state, "wakes_in": None, "sleeps_in": None, "retry_in": None, "pinned": False} | more
    assert explain.headline(view, None, 100.0) == f"m is {state}.{end}"
    assert explain.headline(view, 40.0, 100.0).startswith(f"m is {state} since {explain.clock(40.0)} (1m 00s).")


def test_an_error_that_is_the_reason_is_told_once() -> None:
    view = {"state": "failed", "reason": "m.onnx is cut short"}
    event = Event(7, 60.0, "refuse", "m", "load failed: m.onnx is cut short; not tried again for 1.0 s", {})
    assert explain.because(view, event, 120.0) == "m.onnx is cut short (event 7, 1m 00s ago)"
    assert explain.because(view | {"reason": "its load failed"}, event, 120.0) == f"its load failed (event 7, 1m 00s ago: {event.text})"


def test_reasons_of_events() -> None:
    def event(**figures: Any) -> Event:
        return Event(1, 0.0, "unload", "m", "", figures)

    assert wording.reason_of(event(reason="idle", code="x")) == "idle"
    assert wording.reason_of(event(cause="oom")) == "oom"
    assert wording.reason_of(event(code=3)) is None


@pytest.mark.parametrize(
    ("situation", "text"),
    [
        (wording.Situation("asleep", None, False, 0, 0, False, None, None, None), "nobody has asked for it yet"),
        (wording.Situation("asleep", None, False, 0, 0, False, None, "lru", "big"), "evicted: memory was needed for big"),
        (wording.Situation("asleep", None, False, 0, 0, False, None, "died", None), "its process has ended by itself"),
        (wording.Situation("waking", None, False, 1, 0, True, None, None, None), "waits for memory, 1 request waiting"),
        (wording.Situation("busy", None, False, 12, 3, False, None, None, None), "12 queued, 3 running"),
        (wording.Situation("draining", None, False, 0, 3, False, "manual", None, None), "put to sleep by hand; 0 queued, 3 running"),
        (wording.Situation("failed", "opset 22", False, 0, 0, False, None, None, None), "opset 22"),
    ],
)
def test_why(situation: wording.Situation, text: str) -> None:
    assert wording.why(situation) == text


def test_where_the_budget_comes_from() -> None:
    assert wording.source_of_budget(None, 20 << 30, "cgroup v2 /x") == "85 % of 20 GiB (cgroup v2 /x)"
    assert wording.source_of_budget(512 * MIB, 20 << 30, "the machine") == "memory_limit; there are 20 GiB (the machine)"
    assert wording.source_of_budget(0.8, 20 << 30, "the machine") == "80 % of 20 GiB (the machine), by memory_limit"
