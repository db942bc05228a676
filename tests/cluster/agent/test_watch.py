"""Figures of use: what is counted between two readings, and what is flagged."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from wakeful.cluster.agent.watch import Reading, Thresholds, Watch, use
from wakeful.cluster.wire import Trigger, UseNow

IDLE = Reading(100.0, 0, 0, 0.0, 0.0, 0.0, 1, None)


def reading(time: float, requests: list[tuple[float, float]]) -> Reading:
    """What counters say of requests that arrive and end at these times."""
    done = [(begin, end) for begin, end in requests if end <= time]
    flying = [begin for begin, end in requests if begin <= time < end]
    last = max((begin for begin, _ in requests if begin <= time), default=None)
    return Reading(time, len(done), len(flying), sum(end - begin for begin, end in done), sum(time - begin for begin in flying), 0.0, 1, last)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.001, 50)), max_size=30), st.floats(0, 100), st.floats(0.1, 50))
def test_lag_is_the_mean_number_in_flight(drawn: list[tuple[float, float]], begin: float, seconds: float) -> None:
    requests = [(arrives, arrives + lasts) for arrives, lasts in drawn]
    end = begin + seconds
    inside = sum(max(0.0, min(end, ends) - max(begin, arrives)) for arrives, ends in requests)
    assert abs(use(reading(begin, requests), reading(end, requests), 0.0).lag - inside / seconds) < 0.01


def test_counters_never_fall_and_what_waits_has_arrived() -> None:
    requests = [(random.Random(7).uniform(0, 50), 60.0) for _ in range(20)]
    counts = [use(IDLE._replace(time=time), reading(time + 1, requests), 0.0) for time in range(0, 70, 5)]
    assert all(later.arrived >= before.arrived and later.completed >= before.completed for before, later in pairwise(counts))
    assert counts[-1].arrived == counts[-1].completed == 20


def test_busy_is_a_share_of_all_replicas() -> None:
    now = IDLE._replace(time=110.0, busy=10.0)
    assert use(IDLE, now, 0.0).busy == 1.0
    assert use(IDLE, now._replace(replicas=4), 0.0).busy == 0.25
    assert use(IDLE, now._replace(replicas=0, busy=5.0), 0.0).busy == 0.5
    assert use(now, IDLE._replace(time=120.0), 0.0).busy == 0.0, "a lane that was lost takes its seconds with it"


def test_the_last_use_is_told_in_wall_time() -> None:
    assert use(IDLE, IDLE._replace(time=105.0), 1e9).last_used == 0.0
    assert use(IDLE, IDLE._replace(time=105.0, last_used=103.0), 1e9).last_used == 1e9 + 103.0


def test_a_threshold_is_flagged_once_when_it_is_crossed() -> None:
    watch, limits = Watch(), {"m": Thresholds(30.0, 60.0)}

    def look(lag: float, idle: float) -> list[Trigger]:
        return watch.look({"m": (UseNow(lag=lag), idle)}, limits)

    assert look(29.9, 59.9) == []
    assert look(30.0, 0.0) == [Trigger("m", "lag")]
    assert look(31.0, 0.0) == []
    assert look(1.0, 60.0) == [Trigger("m", "inactive")]
    assert look(30.0, 61.0) == [Trigger("m", "lag")]
    watch.forget()
    assert [trigger.kind for trigger in look(30.0, 61.0)] == ["lag", "inactive"]


def test_nobody_hears_of_a_model_whose_count_is_fixed() -> None:
    watch = Watch()
    assert watch.look({"m": (UseNow(lag=1e6), 1e6)}, {"m": Thresholds(None, None)}) == []
    assert watch.look({"m": (UseNow(lag=1e6), 1e6)}, {}) == []
