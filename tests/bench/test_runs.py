"""What is made of the figures of a run, and of several."""

from array import array
from collections.abc import Sequence

import pytest

from bench.runs import Run, ratios, spread, statuses, throughput
from wakeful.loadgen.results import Results


def results(ends: Sequence[float], wall: float, status: int = 200) -> Results:
    """Answers at these moments, each a tenth of a second after its call."""
    count = len(ends)
    return Results(
        array("d", [end - 0.1 for end in ends]), array("d", [0.1] * count), array("h", [status] * count), array("l", [0] * count), wall, 0.5, 0.0,
    )


@pytest.mark.parametrize("offset", [0.01, 0.3, 0.79])
def test_throughput_counts_whole_batches_wherever_the_window_begins(offset: float) -> None:
    """16 rows every 0.8 s are 20 rows a second; counting answers in 6 seconds would give 18.7 or 21.3."""
    ends = [offset + 0.8 * number for number in range(8) for _ in range(16) if offset + 0.8 * number <= 6.0]
    assert throughput(results(ends, 6.0)) == pytest.approx(20.0)


def test_throughput_of_steady_answers_is_their_rate() -> None:
    assert throughput(results([0.01 * number for number in range(1, 501)], 5.0)) == pytest.approx(100.0, rel=0.01)


def test_throughput_leaves_out_what_came_after_the_end_and_what_was_refused() -> None:
    late = results([0.01 * number for number in range(1, 501)] + [7.0] * 50, 5.0)
    assert throughput(late) == pytest.approx(100.0, rel=0.01)
    assert throughput(results([0.01 * number for number in range(1, 501)], 5.0, status=429)) == 0.0


def test_throughput_of_few_answers_is_counted_plainly() -> None:
    assert throughput(results([1.0, 2.0, 3.0], 4.0)) == pytest.approx(0.75)
    assert throughput(results([], 4.0)) == 0.0


def test_a_ratio_is_taken_within_a_round() -> None:
    """The machine was half as fast in the second round, for both."""
    assert ratios([300.0, 150.0, 310.0], [100.0, 50.0, 100.0]) == (3.0, 3.0, 3.1)


def test_a_spread_shows_median_and_extremes() -> None:
    assert spread([3.0, 1.0, 2.0]).show(".1f", " ms") == "2.0 ms (1.0 to 3.0)"


def test_statuses_are_counted() -> None:
    assert statuses(results([1.0, 2.0], 3.0, 429)) == "2 x 429"
    assert statuses(results([], 3.0)) == "none"


def test_a_line_has_milliseconds_and_microseconds() -> None:
    line = Run("Wakeful", 1, 32, 1000.0, 0.001, 0.002, 0.003, cpu=50e-6, pss=2**20, batch=0.0, generator=0.25, failed=0).line()
    shown = {"p50 ms": 1.0, "server CPU us/request": 50.0, "memory MiB": 1.0, "rows/batch": "", "generator CPU %": 25}
    assert shown.items() <= line.items()
