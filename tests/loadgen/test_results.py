"""Rates, percentiles and parts of what was measured; and what is told of it."""

import json
import math
from array import array
from typing import Any

import numpy as np
import pytest

from wakeful.loadgen.calls import Call
from wakeful.loadgen.results import Results
from wakeful.loadgen.summary import as_dict, failures, histogram, over_time

CALLS = [Call(b"", 1, "a"), Call(b"", 10, "b")]


def results(start: list[float], seconds: list[float], status: list[int], call: list[int], **other: Any) -> Results:
    columns = array("d", start), array("d", seconds), array("h", status), array("l", call)
    return Results(*columns, **({"wall": 10.0, "cpu": 5.0, "lag": 0.001} | other))


EMPTY = results([], [], [], [])
MIXED = results([0, 1, 2, 3, 9], [0.1, 0.2, math.nan, 0.3, 2], [200, 200, 0, 429, 201], [0, 1, 0, 1, 1], errors={0: "timeout", 429: "full"})


def test_figures() -> None:
    assert len(MIXED) == 5
    assert MIXED.ok() == 3
    assert MIXED.throughput() == pytest.approx(0.2)  # the last answer came after the end
    assert MIXED.rows_per_second(CALLS) == pytest.approx(1.1)
    assert MIXED.within(0.15) == pytest.approx(0.1)
    assert MIXED.within(5) == pytest.approx(0.2)
    assert MIXED.busy() == 0.5


def test_percentiles_are_of_answers_that_were_given() -> None:
    many = results([0] * 100, [float(n) for n in range(100, 0, -1)], [200] * 100, [0] * 100)
    assert [many.percentile(q) for q in (0, 1, 50, 99, 99.5, 100)] == [1, 1, 50, 99, 100, 100]
    assert MIXED.percentile(100) == 2
    assert math.isnan(EMPTY.percentile(50))
    with pytest.raises(ValueError, match=r"99, not 0\.99"):
        many.percentile(0.99)


def test_warmed() -> None:
    later = MIXED.warmed(2)
    assert list(later.start) == [0, 1, 7]
    assert list(later.status) == [0, 429, 201]
    assert (later.wall, later.cpu) == (8, 4)
    assert MIXED.warmed(60).throughput() == 0
    assert len(MIXED) == 5


def test_of_one_label() -> None:
    assert list(MIXED.of(CALLS, "a").status) == [200, 0]
    assert MIXED.of(CALLS, "b").ok() == 2
    assert len(MIXED.of(CALLS, "c")) == 0


def test_nothing_measured() -> None:
    none = results([], [], [], [], wall=0.0, cpu=0.0)
    assert (none.ok(), none.throughput(), none.busy(), none.rows_per_second(CALLS)) == (0, 0, 0, 0)
    assert (failures(none), histogram(none.latencies()), over_time(none)) == ([], [], [])
    assert as_dict(none, CALLS[:1])["latency_ms"]["p99"] is None


def test_failures_are_told_in_words() -> None:
    errors = {0: "timeout", 429: '{"error": "full"}', 500: '["odd"]'}
    seen = failures(results([0] * 5, [1] * 5, [429, 0, 429, 200, 500], [0] * 5, errors=errors))
    assert seen == [(429, 2, "full"), (0, 1, "timeout"), (500, 1, '["odd"]')]


@pytest.mark.parametrize("seconds", [[0.0001], [0.001, 0.0015, 0.002], [0.02, 3.7], list(np.random.default_rng(1).lognormal(-6, 2, 1000)), [0.0]])
def test_a_histogram_has_every_answer_between_round_bounds(seconds: list[float]) -> None:
    values = np.array(seconds)
    bins = histogram(values)
    assert sum(one.answers for one in bins) == len(values)
    assert bins[0].answers
    assert bins[-1].answers
    bounds = [one.below for one in bins]
    assert bounds == sorted(set(bounds))
    below = 0
    for one in bins:
        below += one.answers
        assert below == (values < one.below).sum()
        assert f"{one.below:.1e}"[:3] in ("1.0", "1.5", "2.0", "3.0", "5.0", "7.0")


def test_over_time() -> None:
    slices = over_time(MIXED, 10)
    assert [one.answers for one in slices] == [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert [one.failures for one in slices] == [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert slices[9].p99 == 2
    assert math.isnan(slices[5].p50)


def test_as_dict_is_json_without_nan() -> None:
    told = json.loads(json.dumps(as_dict(MIXED, CALLS), allow_nan=False))
    assert (told["requests"], told["ok"], told["latency_ms"]["max"]) == (5, 3, 2000)
    assert told["errors"] == [{"status": 0, "count": 1, "first": "timeout"}, {"status": 429, "count": 1, "first": "full"}]
    assert told["generator"] == {"busy": 0.5, "cpu_seconds": 5.0, "lag_p99_ms": 1.0}
    assert {label: figures["ok"] for label, figures in told["models"].items()} == {"a": 1, "b": 2}
    assert "models" not in as_dict(MIXED.of(CALLS, "a"), CALLS[:1])
