"""When a step in the load counts as absorbed."""

from array import array

import pytest

from bench.rows.scaling import WINDOW, absorbed
from wakeful.loadgen.results import Results

STEP = 1.0


def answered(slow_from: float, slow_until: float) -> Results:
    """100 calls a second; those that were due in between took a second, the others 10 ms. Times from the step."""
    start = array("d", [0.01 * number for number in range(500)])
    seconds = array("d", [1.0 if slow_from <= due - STEP < slow_until else 0.01 for due in start])
    return Results(start, seconds, array("h", [200] * 500), array("l", [0] * 500), 5.0, 0.0, 0.0)


def test_it_ends_with_the_last_slow_window() -> None:
    seconds, steady, windows = absorbed(answered(0.1, 0.75), STEP, 4.0)
    assert seconds == pytest.approx(0.8)
    assert steady == pytest.approx(0.01)
    assert len(windows) == round(4.0 / WINDOW)


def test_good_windows_before_the_queue_has_grown_do_not_count() -> None:
    assert absorbed(answered(0.45, 0.95), STEP, 4.0)[0] == pytest.approx(1.0)


def test_a_step_that_nobody_felt() -> None:
    assert absorbed(answered(9.0, 9.0), STEP, 4.0)[0] == 0.0
