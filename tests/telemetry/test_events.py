from tests.clock import Clock
from wakeful.telemetry.events import QUIET, Events


def test_an_event_keeps_its_figures() -> None:
    events = Events(now=Clock())
    events.emit("scale", "embedder", "2→3  queue 11 > 8", before=2, after=3, queue=11, threshold=8)
    (event,) = events.list()
    assert (event.seq, event.time, event.kind, event.model, event.text) == (1, 1000.0, "scale", "embedder", "2→3  queue 11 > 8")
    assert event.figures == {"before": 2, "after": 3, "queue": 11, "threshold": 8}


def test_the_oldest_give_way() -> None:
    events = Events(capacity=3)
    for number in range(5):
        events.emit("load", "m", str(number))
    assert [(event.seq, event.text) for event in events.list()] == [(3, "2"), (4, "3"), (5, "4")]


def test_list_filters() -> None:
    events = Events()
    for model in ("a", "b"):
        for kind in ("load", "unload"):
            events.emit(kind, model, "")
    assert [event.seq for event in events.list(since=2)] == [3, 4]
    assert [event.seq for event in events.list(model="b")] == [3, 4]
    assert [event.seq for event in events.list(kind="load")] == [1, 3]
    assert [event.seq for event in events.list(limit=2)] == [3, 4]
    assert [event.seq for event in events.list(since=1, limit=1, model="a", kind="unload")] == [2]
    assert events.list(since=4) == ()


def test_a_storm_of_refusals_is_kept_once_and_counted() -> None:
    now = Clock()
    events = Events(now=now)
    for _ in range(1000):
        events.emit("refuse", "m", "queue full", queue=2048)
    events.emit("refuse", "other", "queue full")
    now.time += QUIET
    events.emit("refuse", "m", "queue full", queue=2048)
    now.time += QUIET
    events.emit("refuse", "m", "queue full", queue=2048)
    assert [(event.model, event.text, event.figures.get("suppressed")) for event in events.list()] == [
        ("m", "queue full", None),
        ("other", "queue full", None),
        ("m", "queue full  (999 more before)", 999),
        ("m", "queue full", None),
    ]


def test_a_wall_clock_set_back_does_not_silence_refusals() -> None:
    now = Clock()
    events = Events(now=now)
    events.emit("refuse", "m", "first")
    now.time -= 500
    events.emit("refuse", "m", "second")
    assert len(events.list()) == 2


def test_other_kinds_are_never_suppressed() -> None:
    events = Events(now=Clock())
    for _ in range(3):
        events.emit("restart", "m", "killed by signal 9")
    assert len(events.list()) == 3
