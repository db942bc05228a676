"""What people and programs read of a run: percentiles, errors by status, a histogram, and how it went over time."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wakeful.loadgen.calls import Call
from wakeful.loadgen.results import Results

PERCENTILES = (50, 90, 95, 99, 100)
BUSY = 0.8
"""From this share of a core on, the generator may have been the limit."""
STEPS_OF_TEN = (1, 1.5, 2, 3, 5, 7)
"""Bounds of a histogram: round figures, about evenly spaced on a logarithmic scale."""
MOST_SLICES = 60


class Facts(NamedTuple):
    """What bounds may be given for."""

    done: float
    """2xx answers a second."""
    rows: float
    """Rows of these, a second."""
    calls: int
    failed: int
    percentile: Callable[[float], float]
    """Seconds, by percent; nan without answers."""
    mean: float
    """Seconds; nan without answers."""


NOTHING = Facts(0.0, 0.0, 0, 0, lambda _: math.nan, math.nan)
"""Of a load of which nothing came."""


class Failures(NamedTuple):
    status: int
    """0: no answer."""
    calls: int
    text: str
    """Of the first one."""


class Bin(NamedTuple):
    below: float
    """Seconds."""
    answers: int


class Slice(NamedTuple):
    """Some of the time."""

    begin: float
    seconds: float
    answers: int
    """2xx answers that came in it."""
    failures: int
    """Calls without a 2xx answer that were due in it."""
    p50: float
    """Of the calls that were due in it; nan: none was answered."""
    p99: float


def percentiles(results: Results) -> dict[int, float]:
    """Seconds by percent; 100 is the longest."""
    return {percent: results.percentile(percent) for percent in PERCENTILES}


def facts(results: Results, calls: Sequence[Call]) -> Facts:
    """Of a run."""
    times = results.latencies()
    mean = float(times.mean()) if len(times) else math.nan
    return Facts(
        results.throughput(), results.rows_per_second(calls), len(results), len(results) - results.ok(), results.percentile, mean,
    )


def failures(results: Results) -> list[Failures]:
    """The most frequent first."""
    statuses, counts = np.unique(np.array(results.status, np.int64), return_counts=True)
    found = [(int(status), int(count)) for status, count in zip(statuses, counts, strict=True) if not 200 <= status < 300]
    return sorted((Failures(status, count, _reason(results.errors.get(status, ""))) for status, count in found), key=lambda one: -one.calls)


def _reason(text: str) -> str:
    """The sentence in an error's body, where it is JSON as servers write it."""
    try:
        body = json.loads(text)
        return str(next(body[key] for key in ("error", "detail", "message") if key in body))
    except (ValueError, TypeError, StopIteration):
        return text


def histogram(seconds: "npt.NDArray[np.float64]") -> list[Bin]:
    """Counts between round bounds, from the bin of the shortest to that of the longest."""
    if not len(seconds):
        return []
    bounds = [_bound(0, float(seconds.min()))]
    while bounds[-1] <= seconds.max():
        bounds.append(_bound(len(bounds), bounds[0]))
    # Counted from the left so that the bins' sum is the number of answers.
    places = np.searchsorted(np.array(bounds[:-1]), seconds, side="right")
    counts = np.bincount(places, minlength=len(bounds))
    bins = [Bin(bound, int(count)) for bound, count in zip(bounds, counts, strict=True)]
    return bins if bins[0].answers else bins[1:]


def _bound(index: int, low: float) -> float:
    """The bound at this place, counted from the largest one that is not over `low`."""
    decade = math.floor(math.log10(max(low, 1e-6)) + 1e-9)
    first = max(place for place, step in enumerate(STEPS_OF_TEN) if not place or step * 10.0**decade <= low * (1 + 1e-9))
    decades, place = divmod(first + index, len(STEPS_OF_TEN))
    return STEPS_OF_TEN[place] * 10.0 ** (decade + decades)


def over_time(results: Results, slices: int = MOST_SLICES) -> list[Slice]:
    """The measured time in equal slices of at least 50 ms."""
    wall = results.wall
    count = min(slices, int(wall / 0.05))
    if count < 1 or not len(results):
        return []
    start, took = np.array(results.start), np.array(results.seconds)
    status = np.array(results.status)
    good = (status >= 200) & (status < 300)
    edges = np.linspace(0, wall, count + 1)
    answers, _ = np.histogram((start + took)[good], edges)
    failed, _ = np.histogram(start[~good].clip(0), edges)
    place = np.searchsorted(edges, start, side="right") - 1
    found: list[Slice] = []
    for index in range(count):
        mine = took[good & (place == index)]
        p50, p99 = (float(value) for value in np.percentile(mine, (50, 99), method="inverted_cdf")) if len(mine) else (math.nan, math.nan)
        found.append(Slice(float(edges[index]), wall / count, int(answers[index]), int(failed[index]), p50, p99))
    return found


def as_dict(results: Results, calls: Sequence[Call]) -> dict[str, Any]:
    """For JSON: milliseconds, and null where there is no figure."""
    labels = sorted({call.label for call in calls})
    whole = _figures(results, calls) | {
        "seconds": results.wall,
        "interrupted": results.interrupted,
        "under_way": results.under_way,
        "generator": {"busy": results.busy(), "cpu_seconds": results.cpu, "lag_p99_ms": 1000 * results.lag},
        "histogram": [{"below_ms": 1000 * one.below, "count": one.answers} for one in histogram(results.latencies())],
        "over_time": [_slice(one) for one in over_time(results)],
    }
    return whole | ({"models": {label: _figures(results.of(calls, label), calls) for label in labels}} if len(labels) > 1 else {})


def _figures(results: Results, calls: Sequence[Call]) -> dict[str, Any]:
    return {
        "requests": len(results),
        "ok": results.ok(),
        "requests_per_second": results.throughput(),
        "rows_per_second": results.rows_per_second(calls),
        "latency_ms": {"max" if percent == 100 else f"p{percent}": _ms(value) for percent, value in percentiles(results).items()},
        "errors": [{"status": one.status, "count": one.calls, "first": one.text} for one in failures(results)],
    }


def _slice(one: Slice) -> dict[str, float | None]:
    figures: dict[str, float | None] = {"begin": one.begin, "seconds": one.seconds, "answers": one.answers, "failures": one.failures}
    return figures | {"p50_ms": _ms(one.p50), "p99_ms": _ms(one.p99)}


def _ms(seconds: float) -> float | None:
    return None if math.isnan(seconds) else 1000 * seconds
