"""Rings and percentiles, with given seconds."""

import pytest

from wakeful.insight.counters import _PLACES, read
from wakeful.insight.history import BUCKETS, COUNTERS, GAUGES, History, percentile
from wakeful.insight.tracks import NOTHING, Levels, Track
from wakeful.telemetry.metrics import LATENCY_BOUNDS, REQUEST_SECONDS, SECONDS, STEP, SUCCESS, ModelStats


def values(requests: float = 0, queue: float = 0) -> list[float]:
    row = dict.fromkeys((*COUNTERS, *GAUGES), 0.0) | {"requests": requests, "queue": queue}
    return list(row.values())


def latencies(bucket: int, count: int = 1) -> list[int]:
    return [count if index == bucket else 0 for index in range(BUCKETS)]


def test_a_model_takes_94_kilobytes() -> None:
    rings = History(0).rings.values()
    size = sum(ring._values.nbytes + (0 if ring._latencies is None else ring._latencies.nbytes) for ring in rings)
    assert size == 12 * 948 * 4 + 18 * 660 * 4


def test_seconds_add_up_to_longer_steps() -> None:
    history = History(0)
    for second in range(25):
        history.record(second, values(requests=1, queue=second), latencies(3))
    columns = history.rings["5m"].columns(24)
    assert columns["requests"] == [None] * 275 + [1] * 25
    assert columns["queue"][-2:] == [23, 24]
    longer = history.rings["1h"]
    assert longer.columns(24)["requests"][-4:] == [None, 10, 10, 5]
    assert longer.columns(24)["queue"][-3:] == [9, 19, 24]
    assert longer.latencies(24)[-4:] == [None, latencies(3, 10), latencies(3, 10), latencies(3, 5)]
    assert history.rings["24h"].columns(24)["requests"][-2:] == [None, 25]
    assert history.rings["24h"].latencies(24) == [None] * 288


def test_in_between_nothing_happened_and_all_was_as_it_was() -> None:
    history = History(0)
    history.record(1, values(requests=5, queue=2), None)
    history.record(4, values(requests=1, queue=7), None)
    columns = history.rings["5m"].columns(6)
    assert columns["requests"][-7:] == [0, 5, 0, 0, 1, 0, 0]
    assert columns["queue"][-7:] == [0, 2, 2, 2, 7, 7, 7]


@pytest.mark.parametrize("pause", [299, 300, 301, 10_000])
def test_what_is_older_than_the_ring_is_forgotten(pause: int) -> None:
    history = History(0)
    history.record(0, values(requests=9), latencies(0))
    ring = history.rings["5m"]
    assert sum(filter(None, ring.columns(pause)["requests"])) == (9 if pause < 300 else 0)
    history.record(pause + 1, values(requests=1), None)
    assert sum(filter(None, ring.columns(pause + 1)["requests"])) == 1
    assert sum(sum(counts or []) for counts in ring.latencies(pause + 1)) == 0
    assert None not in ring.columns(pause + 1)["requests"]


def test_the_window_is_the_last_minute_or_what_there_is_of_it() -> None:
    history = History(100)
    for second in range(100, 110):
        history.record(second, values(requests=3), latencies(5))
    window = history.window(109)
    assert (window.seconds, window.rate("requests")) == (10, 3.0)
    assert window.latencies == latencies(5, 10)
    assert history.window(168).sums[0] == 3
    assert history.window(169).sums[0] == 0
    assert history.window(169).rows_per_run is None


def test_percentiles() -> None:
    assert percentile([0] * BUCKETS, 0.5) is None
    assert percentile(latencies(5, 100), 0.5) == pytest.approx((LATENCY_BOUNDS[4] + LATENCY_BOUNDS[5]) / 2)
    assert percentile(latencies(0, 4), 1.0) == LATENCY_BOUNDS[0]
    assert percentile(latencies(17, 4), 1.0) == 60.0
    mixed = [one + other for one, other in zip(latencies(2, 99), latencies(9, 1), strict=True)]
    assert (percentile(mixed, 0.5) or 1) < LATENCY_BOUNDS[2]
    assert (percentile(mixed, 0.999) or 0) > LATENCY_BOUNDS[8]


def test_requests_are_counted_once_for_both_kinds_of_bounds() -> None:
    assert set(SECONDS) <= set(REQUEST_SECONDS)
    assert set(LATENCY_BOUNDS) <= set(REQUEST_SECONDS)
    assert sorted(_PLACES) == _PLACES
    stats = ModelStats("m")
    for seconds in (0.0004, 0.003, 0.0045, 0.06, 29.0, 61.0):
        stats.settled("http", SUCCESS, seconds)
    stats.settled("http", "timeout", 5.0)
    shown = read(stats).latencies
    assert [index for index, count in enumerate(shown) for _ in range(count)] == [0, 3, 4, 7, 16, 17]
    assert stats.request_seconds.coarser(SECONDS) == [1, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1]
    assert read(stats).counters[:2] == (7, 1)


def test_steps_of_pipelines_are_no_requests_of_callers() -> None:
    stats = ModelStats("m")
    stats.settled("http", SUCCESS, 0.003)
    stats.settled(STEP, SUCCESS, 0.003)
    stats.settled(STEP, "timeout", 1.0)
    stats.settled("http", "left", 1.0)
    reading = read(stats)
    assert reading.counters[:2] == (4, 1)
    assert reading.own[:2] == (2, 0)
    assert reading.own.seconds == pytest.approx(1.003)
    assert sum(reading.latencies) == 2
    assert sum(reading.own_latencies) == 1


def test_a_track_notes_only_seconds_in_which_something_happens() -> None:
    stats = ModelStats("m")
    stats.settled("http", SUCCESS, 0.003)  # before anybody looked
    track = Track(stats, 10)
    assert track.record(11, NOTHING) is None
    assert track.record(12, Levels(0, 0, 1, 100, 0)) is not None
    stats.settled("http", SUCCESS, 0.003)
    stats.batch_rows.observe(4)
    assert track.record(13, Levels(0, 0, 1, 100, 0)) is not None
    assert track.record(14, Levels(0, 0, 1, 100, 0)) is None
    window = track.window(14)
    assert window is not None
    assert (window.sums[0], window.rows_per_run) == (1, 4)
    assert track.rows_lately(14)[2] == 1
    assert sum(track.rows_lately(74)) == 0
    assert track.window(73) is None
    track.changed(1.0, "ready")
    track.changed(2.0, "ready")
    track.changed(3.0, "asleep", "i")
    assert [change.state for change in track.changes] == ["ready", "asleep"]
