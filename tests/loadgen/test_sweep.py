"""The search for the knee: which rate comes next, what counts as kept up, and what is made of a step's calls."""

import math
from array import array
from collections.abc import Callable

import numpy as np
import pytest

from tests.loadgen.steps import SWEEP, step
from wakeful.loadgen.calls import Call
from wakeful.loadgen.results import Results
from wakeful.loadgen.sweep import MOST_STEPS, Step, agree, first_rate, knee, long_enough, measured, next_rate, rounded


def found(server: Callable[[float], Step], first: float) -> list[Step]:
    steps: list[Step] = []
    while (rate := next_rate(steps, first)) is not None:
        steps.append(server(rate))
    return steps


def up_to(capacity: float) -> Callable[[float], Step]:
    return lambda rate: step(rate, min(rate, capacity), 0.004, 0.012)


def test_rates_are_doubled_and_then_halved_in_between() -> None:
    steps = found(up_to(1000), 100)
    assert [one.rate for one in steps] == [100, 200, 400, 800, 1600, 1100, 1100, 940, 1000]
    best = knee(steps)
    assert best is not None
    assert best.rate == 1000  # 1050 would be kept up too: 95 % is enough


@pytest.mark.parametrize("capacity", [3.0, 47.0, 999.0, 54_321.0])
@pytest.mark.parametrize("first", [1.0, 50.0, 2000.0])
def test_the_knee_is_found_from_anywhere(capacity: float, first: float) -> None:
    steps = found(up_to(capacity), first)
    best = knee(steps)
    if capacity < first / 64 or best is None:
        assert not any(one.kept for one in steps)
    else:
        assert capacity / 1.1 <= best.rate <= capacity / 0.95 + 2
    assert len(steps) <= MOST_STEPS


def test_a_server_that_keeps_up_with_nothing_ends_the_search() -> None:
    steps = found(lambda rate: step(rate, rate / 2, 0.1, 0.2, failed=round(rate)), 64)
    assert [one.rate for one in steps] == [64, 32, 16, 8, 4, 2, 1]
    assert knee(steps) is None
    silent = found(lambda rate: step(rate, 0, math.nan, math.nan, failed=round(2 * rate)), 64)
    assert [one.rate for one in silent] == [64]


def test_a_rate_that_was_just_missed_is_tried_again() -> None:
    tried: list[float] = []

    def once_disturbed(rate: float) -> Step:
        tried.append(rate)
        return step(rate, min(rate, 1000) * (0.9 if tried == [100, 200] else 1), 0.004, 0.012)

    steps = found(once_disturbed, 100)
    assert [one.rate for one in steps][:4] == [100, 200, 200, 400]
    best = knee(steps)
    assert best is not None
    assert best.rate == 1000


def test_steps_of_low_rates_take_longer() -> None:
    assert [long_enough(2, rate) for rate in (100, 5, 2, 0.1)] == [2, 2, 5, 30]


def test_the_generators_end_and_ctrl_c_end_the_search() -> None:
    steps = found(lambda rate: step(rate, rate, 0.004, 0.012, busy=rate / 1000), 100)
    assert [one.rate for one in steps] == [100, 200, 400, 800, 1600][: len(steps)]
    assert steps[-1].busy > 0.8
    assert next_rate([step(100, 60, 0.004, 0.01, interrupted=True)], 100) is None


def test_what_is_above_a_rate_that_was_missed_does_not_count() -> None:
    steps = [step(100, 100, 0.01, 0.02), step(200, 100, 0.01, 0.02), step(400, 400, 0.01, 0.02)]
    best = knee(steps)
    assert best is not None
    assert best.rate == 100


def test_what_is_kept_up() -> None:
    assert step(1000, 951, 0.01, 0.02).kept
    assert not step(1000, 948, 0.01, 0.02).kept
    assert step(1000, 1000, 0.01, 0.02, failed=20).kept
    assert not step(1000, 1000, 0.01, 0.02, failed=21).kept
    assert step(4, 3, 0.3, 0.4).kept  # of eight calls two may be under way
    assert not step(4, 2.5, 0.3, 0.4).kept
    growing = (1.0, 0.01), (1.0, 0.02), (1.0, 0.03)
    assert not step(1000, 1000, 0.02, 0.03, windows=growing).kept
    assert step(1000, 1000, 0.002, 0.03, windows=[(one, p50 / 10) for one, p50 in growing]).kept
    assert [one.kept for one in SWEEP] == [True, True, True, False, False]


def test_spread() -> None:
    assert step(10, 10, 0.01, 0.02).spread == 0
    assert step(10, 10, 0.01, 0.02, windows=((1, 0.01), (1, 0.011), (1, 0.012))).spread == pytest.approx(1 / 11)
    assert step(10, 10, 0.01, 0.02, windows=((1, 0.01), (1.2, 0.01), (0.8, 0.01))).spread == pytest.approx(0.2)
    assert math.isnan(step(10, 10, 0.01, 0.02, windows=((1, 0.01), (0, math.nan), (1, 0.01))).spread)


def test_rates_to_begin_with() -> None:
    assert [first_rate(seconds) for seconds in (0.25, 0.001, 0.0125, 0.00025)] == pytest.approx([1, 300, 20, 1000])
    assert [rounded(rate) for rate in (1, 1.2, 1.4, 880, 0.016, 9.9)] == pytest.approx([1, 1, 1.5, 1000, 0.015, 10])
    assert agree(0.01, 0.0109)
    assert not agree(0.0, 0.01)


def test_a_step_counts_what_comes_while_calls_are_due() -> None:
    """A hundred calls a second for four seconds, of which the first does not count, by a server that answers after half a second."""
    moments = np.arange(400) / 100
    took = np.full(400, 0.5)
    status = np.full(400, 200, np.int16)
    status[150:160] = 503
    columns = array("d", moments.tobytes()), array("d", took.tobytes()), array("h", status.tobytes()), array("l", [0] * 400)
    made = measured(Results(*columns, wall=4.5, cpu=0.9, lag=0.0), [Call(b"", 3, "m")], 100.0, 1.0, 3.0)
    assert (made.due, made.facts.calls, made.facts.failed) == (100, 300, 10)
    assert made.facts.done == pytest.approx(290 / 3)
    assert made.facts.rows == pytest.approx(290)
    assert [one.p50 for one in made.windows] == [0.5, 0.5, 0.5]
    assert [one.answered for one in made.windows] == pytest.approx([1, 0.9, 1], abs=0.011)
    assert made.busy == pytest.approx(0.2)
    assert sum(one.answers for one in made.bins) == 290
