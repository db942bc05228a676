"""What a model has counted so far, as one row of numbers: the difference of two rows is what happened in between."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from wakeful.batching.settling import LEFT
from wakeful.telemetry.metrics import LATENCY_BOUNDS, REQUEST_SECONDS, STEP, SUCCESS, ModelStats

_PLACES = [min(bisect_left(LATENCY_BOUNDS, bound), len(LATENCY_BOUNDS) - 1) for bound in (*REQUEST_SECONDS, float("inf"))]
"""Of each bucket that is counted, the one in which it is shown."""


class Counters(NamedTuple):
    """Cumulative, by `history.COUNTERS`."""

    requests: int
    """Settled, whatever came of them."""
    failures: int
    """Of those whose callers waited for the answer."""
    rows: float
    runs: int
    queue_seconds: float
    run_seconds: float
    seconds: float


class Reading(NamedTuple):
    counters: Counters
    latencies: list[int]
    """Of answers, by LATENCY_BOUNDS."""
    own: Counters
    """Of what callers have asked for themselves: without steps of pipelines."""
    own_latencies: list[int]


def read(stats: ModelStats) -> Reading:
    requests = failures = steps = failed_steps = 0
    for (protocol, outcome), count in stats.requests.items():
        wrong = count if outcome not in (SUCCESS, LEFT) else 0
        requests += count
        failures += wrong
        if protocol == STEP:
            steps += count
            failed_steps += wrong
    total, batches = stats.request_seconds, stats.batch_rows
    counters = Counters(requests, failures, batches.sum, batches.count, stats.queue_seconds.sum, stats.run_seconds.sum, total.sum)
    latencies = answered(stats)
    if not steps:
        return Reading(counters, latencies, counters, latencies)
    own = counters._replace(requests=requests - steps, failures=failures - failed_steps, seconds=total.sum - stats.step_seconds)
    return Reading(counters, latencies, own, minus(latencies, _shown(stats.steps.counts)))


def answered(stats: ModelStats) -> list[int]:
    """Answers by the time they took, as LATENCY_BOUNDS has it; the last count is of all above the bound before."""
    return _shown(minus(stats.request_seconds.counts, stats.failures.counts))


def minus(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [one - other for one, other in zip(left, right, strict=True)]


def _shown(counts: list[int]) -> list[int]:
    shown = [0] * len(LATENCY_BOUNDS)
    for place, count in zip(_PLACES, counts, strict=True):
        shown[place] += count
    return shown
