"""What the page reckons by itself, against what the daemon reckons, with given figures."""

from typing import Any

import pytest

from tests.daemon import Daemon
from tests.ui.conftest import Open
from tests.ui.visit import Visit
from wakeful.insight.history import percentile
from wakeful.telemetry.metrics import LATENCY_BOUNDS
from wakeful.telemetry.units import show_bytes, show_seconds

SIZES = [0, 1, 1023, 1024, 1048051, 1048052, 61 * 1024**2, 9 * 1024**3, 5 * 1024**4, 1024**5 * 3, 10188, 10189]
TIMES = [0, 0.0000004, 0.00033, 0.001, 0.0099, 0.045, 0.9994, 0.9995, 4.2, 9.94, 9.95, 42, 59.4, 59.5, 61, 242, 3599, 3599.6, 3780, 86400]


@pytest.fixture
def seen(daemon: Daemon, visit: Open) -> Visit:
    opened: Visit = visit(daemon)
    opened.live()
    return opened


def test_sizes_and_times_read_as_in_the_terminal(seen: Visit) -> None:
    assert seen.module("format.js", "a[0].map(m.bytes)", SIZES) == [show_bytes(size) for size in SIZES]
    assert seen.module("format.js", "a[0].map(m.seconds)", TIMES) == [show_seconds(time).replace("us", "µs") for time in TIMES]
    assert seen.module("format.js", "[m.bytes(null), m.seconds(null), m.rate(0), m.rate(0.01), m.rate(812.4)]") == ["–", "–", "0", "<0.1", "812"]


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_percentiles_are_those_of_the_daemon(seen: Visit, share: float) -> None:
    columns = [[0] * 18, [1] + [0] * 17, [0] * 17 + [3], [number % 5 for number in range(18)], [0, 0, 9, 1] + [0] * 14]
    shown = seen.module("model.js", "a[0].map((counts) => m.percentile(counts, a[1]))", columns, share)
    for mine, counts in zip(shown, columns, strict=True):
        assert mine == pytest.approx(percentile(counts, share)) if any(counts) else mine is None
    assert seen.module("model.js", "m.BOUNDS") == list(LATENCY_BOUNDS)


def frame(what: str, /, **data: Any) -> dict[str, Any]:
    return {"kind": what, "data": data}


def model(key: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "state": "ready", "pipeline": False, "replicas": [], "sleeps_in": None, "queue": 0, **more}


def snapshot(seq: int, pid: int, *models: dict[str, Any]) -> dict[str, Any]:
    return frame("snapshot", seq=seq, time=1000.0, daemon={"pid": pid, "up_seconds": 5, "memory": {"used": 1, "budget": 9}}, models=models)


def event(seq: int) -> dict[str, Any]:
    return frame("event", seq=seq, time=1.0, kind="load", model="a", text="")


PLAYED = """a[0].reduce((picture, [frame, now]) => m.apply(picture, frame, now), m.NOTHING)"""


def played(seen: Visit, expression: str, *frames: dict[str, Any]) -> Any:
    """Frames come a second after each other."""
    return seen.module("picture.js", f"((p) => {expression})({PLAYED})", [[one, 100.0 + index] for index, one in enumerate(frames)])


def test_ticks_change_what_they_name(seen: Visit) -> None:
    changes = {"a": {"queue": 3, "sleeps_in": 20}, "b": None, "c": model("c", state="asleep")}
    tick = frame("tick", seq=5, t=1001.0, mem={"used": 7}, daemon={"p99": 0.5}, models=changes)
    frames = (snapshot(4, 1, model("a"), model("b")), tick)
    assert played(seen, "[...p.models.keys()]", *frames) == ["a", "c"]
    assert played(seen, "p.models.get('a')", *frames) == model("a", queue=3, sleeps_in=121.0)
    assert played(seen, "p.daemon", *frames) == {
        "pid": 1, "up_seconds": 5, "since": 995, "memory": {"used": 7, "budget": 9}, "p99": 0.5,
        "models": {"total": 2, "awake": 1, "asleep": 1, "failed": 0},
    }


def test_an_event_is_there_once_and_in_order(seen: Visit) -> None:
    frames = (snapshot(4, 1), event(5), event(7), frame("events", events=[event(number)["data"] for number in (3, 4, 5, 6, 7)]), event(7), event(8))
    assert played(seen, "p.events.map((event) => event.seq)", *frames) == [3, 4, 5, 6, 7, 8]


def test_another_life_of_the_daemon_begins_anew(seen: Visit) -> None:
    assert played(seen, "[p.lives, p.events.length]", snapshot(4, 1), event(5), snapshot(9, 1)) == [0, 1]
    assert played(seen, "[p.lives, p.events.length]", snapshot(4, 1), event(5), snapshot(9, 2)) == [1, 0]
    assert played(seen, "[p.lives, p.events.length]", snapshot(4, 1), event(5), snapshot(2, 1)) == [1, 0]


def history(begin: float, requests: list[int | None], states: list[dict[str, Any]]) -> dict[str, Any]:
    return {"step": 1, "from": begin, "series": {"requests": requests}, "lat": [None if one is None else [one] for one in requests], "states": states}


def change(time: float, state: str) -> dict[str, Any]:
    return {"t": time, "state": state, "reason": None}


def test_what_a_restart_forgot_is_kept_with_a_gap(seen: Visit) -> None:
    before = history(100, [1, 2, 3, 4, None], [change(99, "ready"), change(103.8, "asleep")])
    after = history(102, [None, None, None, 7, 8], [change(105, "waking")])
    joined = seen.module("history.js", "m.joined(a[0], a[1])", before, after)
    assert joined["series"]["requests"] == [3, 4, None, 7, 8]
    assert joined["lat"] == [[3], [4], None, [7], [8]]
    whole = [(99, "ready"), (103.8, "asleep"), (104, "unknown"), (105, "waking")]
    assert [(one["t"], one["state"]) for one in joined["states"]] == whole
    again = seen.module("history.js", "m.joined(a[0], a[1])", joined, history(103, [None, None, 7, 8, 9], after["states"]))
    assert again["series"]["requests"] == [4, None, 7, 8, 9]
    assert [(one["t"], one["state"]) for one in again["states"]] == whole
    over = history(105, [7, 8, 9, 10, 11], after["states"])
    assert seen.module("history.js", "m.joined(a[0], a[1])", again, over) == over
    quick = seen.module("history.js", "m.joined(a[0], a[1], true)", history(100, [1, 2], [change(99, "ready")]), history(100, [5, 6], []))
    assert [one["state"] for one in quick["states"]] == ["ready", "unknown"]
    still = seen.module("history.js", "m.joined(a[0], a[1])", quick, history(100, [5, 6], [change(101.5, "ready")]))
    assert [(one["t"], one["state"]) for one in still["states"]] == [(99, "ready"), (101, "unknown"), (101.5, "ready")]
    earlier = seen.module("history.js", "m.joined(a[0], a[1])", history(103, [1, 2, 3], []), after)
    assert earlier["series"]["requests"] == [None, 1, 2, 7, 8]
    assert seen.module("history.js", "m.joined(undefined, a[0])", before) == before


def test_what_a_restart_forgot_of_models(seen: Visit) -> None:
    before = history(100, [1, 2], []) | {"memory": {"a": [5, 6], "b": [0, 1]}, "others": None, "states": {"a": [change(99, "ready")]}}
    after = history(101, [None, 3], []) | {"memory": {"b": [None, 2]}, "others": None, "states": {"b": [change(102, "ready")]}}
    joined = seen.module("history.js", "m.joined(a[0], a[1])", before, after)
    assert joined["memory"] == {"a": [6, None], "b": [1, 2]}
    assert {name: [one["state"] for one in states] for name, states in joined["states"].items()} == {"a": ["ready", "unknown"], "b": ["ready"]}


def test_paths_leave_gaps_out(seen: Visit) -> None:
    assert seen.module("charts.js", "m.linePath([0, 10, null, 5], 10)") == "M0 100L333.3 0M1000 50h1"
    assert seen.module("charts.js", "m.bandPath([0, 0], [5, 10], 10)") == "M0 50L1000 0L1000 100L0 100Z"
    assert seen.module("charts.js", "[...m.stretches(5, (index) => index !== 2)]") == [[0, 1], [3, 4]]
    assert seen.module("charts.js", "[0, 1, 1.2, 40, 99, 101].map(m.roundTop)") == [1, 1, 1.5, 50, 100, 150]


def test_pieces_of_a_lane(seen: Visit) -> None:
    changes = [change(0, "waking"), change(10, "ready"), {"t": 50, "state": "asleep", "reason": "i"}, change(90, "ready")]
    pieces = seen.module("timeline.js", "m.pieces(a[0], 20, 100)", changes)
    assert [(one["from"], one["to"], one["state"], one["reason"]) for one in pieces] == [
        (20, 50, "ready", "i"), (50, 90, "asleep", None), (90, 100, "ready", None),
    ]


def npy(array: Any) -> list[int]:
    import io

    import numpy as np

    file = io.BytesIO()
    np.save(file, array)
    return list(file.getvalue())


def test_files_of_numpy_are_read(seen: Visit) -> None:
    import numpy as np

    read = "m.readNpy(new Uint8Array(a[0]).buffer)"
    for dtype in ("float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64"):
        assert seen.module("tryit.js", read, npy(np.arange(6, dtype=dtype).reshape(2, 3))) == [[2, 3], [0, 1, 2, 3, 4, 5]]
    assert seen.module("tryit.js", read, npy(np.array([True, False]))) == [[2], [True, False]]
    told = "(() => { try { return m.readNpy(new Uint8Array(a[0]).buffer) } catch (error) { return error.message } })()"
    for wrong in ([1, 2, 3], npy(np.arange(4, dtype=">i4")), npy(np.array(["a"])), npy(np.asfortranarray(np.ones((2, 2))))):
        assert isinstance(seen.module("tryit.js", told, wrong), str)


def test_tensors_of_a_form(seen: Visit) -> None:
    make = "(() => { try { return m.tensorOf(a[0], a[1]) } catch (e) { return e.message } })()"
    spec = {"name": "x", "datatype": "INT64", "shape": [-1, 2]}
    entry = {"fill": "zeros", "sizes": [2, 2], "text": "[[1, 2], [3, 4]]", "file": None}
    whole = {"name": "x", "datatype": "INT64", "shape": [2, 2]}
    assert seen.module("tryit.js", make, spec, entry) == whole | {"data": [0, 0, 0, 0]}
    assert seen.module("tryit.js", make, spec, entry | {"fill": "json"}) == whole | {"data": [1, 2, 3, 4]}
    assert seen.module("tryit.js", make, spec, entry | {"sizes": [1.5, 2]}) == "x: sizes are whole numbers"
    assert "too many" in seen.module("tryit.js", make, spec, entry | {"sizes": [10**9, 2]})
    text = {"name": "t", "datatype": "BYTES", "shape": [-1]}
    assert seen.module("tryit.js", make, text, entry | {"sizes": [3], "text": "one\ntwo"})["data"] == ["one", "two", ""]
