"""The figures of row F, from rounds that are made up."""

from array import array
from collections.abc import Sequence

import pytest

from bench.rows.regret import AGAIN, DEFAULT, EAGER, Case
from wakeful.loadgen.results import Results


def took(*seconds: float) -> Results:
    count = len(seconds)
    return Results(
        array("d", [0.0] * count), array("d", seconds), array("h", [200] * count), array("l", [0] * count), wall=10.0, cpu=0.0, lag=0.0,
    )


def rounds(*seconds: float) -> Sequence[Results]:
    return [took(value, value) for value in seconds]


def test_the_best_of_a_round_is_chosen_by_the_others() -> None:
    """One row at a time is lucky in the last round, which must not choose for itself."""
    case = Case("m x1 10 %", {
        DEFAULT: rounds(2.0, 2.0, 2.0), EAGER: rounds(1.0, 2.0, 2.0), "1 rows, 0 ms": rounds(3.0, 3.0, 1.0), AGAIN: rounds(4.0, 4.0, 4.0),
    })
    assert case.best == [EAGER, EAGER, EAGER]
    assert case.regret(AGAIN) == pytest.approx(2 * case.regret())
    assert case.share() == 1.0


def test_a_lone_request_is_compared_with_no_delay() -> None:
    case = Case("m x1 10 %", {DEFAULT: rounds(1.5, 1.5), EAGER: rounds(1.0, 1.0), "1 rows, 0 ms": rounds(0.5, 0.5)})
    assert case.wait() == pytest.approx(0.5)


def test_one_round_chooses_for_itself() -> None:
    case = Case("m x1 10 %", {DEFAULT: rounds(3.0), EAGER: rounds(2.0), "1 rows, 0 ms": rounds(4.0)})
    assert case.best == [EAGER]
    assert case.regret() == pytest.approx(1.5)
