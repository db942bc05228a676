"""The policies at work on simulated time: replicas whose runs take a + b * rows, and single rows that arrive at random."""

import heapq
import random
import statistics
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from wakeful.batching.policy import POLICIES, ArrivalRate, CostModel, Limits, View

MODELS = {  # fixed part, per-row part (seconds), row limit
    "mlp": (60e-6, 1e-6, 32),
    "cpu encoder": (1e-3, 4.4e-3, 16),
    "cpu small": (0.3e-3, 0.7e-3, 16),
    "gpu resnet": (4e-3, 0.25e-3, 32),
    "gpu encoder": (8e-3, 0.5e-3, 64),
}
LOADS = (0.1, 0.5, 0.8, 0.95)
DELAYS = (0.0, 0.001, 0.002, 0.005, 0.010)


class Outcome(NamedTuple):
    mean: float
    p99: float
    largest: int
    """Rows of the largest batch."""


@cache
def simulate(policy: str, delay: float, model: str, replicas: int, load: float, rows: int = 3000) -> Outcome:
    """Latencies of `rows` rows in seconds, the first tenth left out. The replicas share their waiting rows, as stealing makes them do."""
    fixed, per_row, limit = MODELS[model]
    rate = load * replicas * limit / (fixed + per_row * limit)
    arrivals = _poisson(rate, rows)
    due, limits, costs, rates = POLICIES[policy], Limits(limit, delay), CostModel(), ArrivalRate()
    rates.observe(0.0, round(rate * ArrivalRate.TIME_CONSTANT))  # as after a long time of the same load
    waiting: list[float] = []
    latencies: list[float] = []
    busy, largest, order = 0, 0, 0
    events: list[tuple[float, int, list[float] | None]] = [(at, -1, None) for at in arrivals]  # sorted, hence a heap
    while events:
        now, kind, batch = heapq.heappop(events)
        if kind == -1:
            waiting.append(now)
            rates.observe(now, 1)
        elif batch is not None:
            busy -= 1
            costs.observe(len(batch), fixed + per_row * len(batch))
            latencies.extend(now - arrived for arrived in batch)
        while waiting and busy < replicas:
            at = due(View(len(waiting), waiting[0], 0, busy, replicas - busy - 1, 2), now, limits, costs, rates)
            order += 1
            if at > now + 1e-12:
                heapq.heappush(events, (at, order, None))  # look again
                break
            batch, waiting = waiting[:limit], waiting[limit:]
            busy, largest = busy + 1, max(largest, len(batch))
            heapq.heappush(events, (now + fixed + per_row * len(batch), order, batch))
    assert len(latencies) == rows
    settled = sorted(latencies[rows // 10 :])
    return Outcome(statistics.fmean(settled), settled[int(0.99 * len(settled))], largest)


def _poisson(rate: float, rows: int) -> Iterator[float]:
    generator, now = random.Random(1), 0.0
    for _ in range(rows):
        now += generator.expovariate(rate)
        yield now


def ratios(replicas: int) -> list[tuple[float, float]]:
    """p99 and mean of the adaptive policy, each relative to the best fixed delay for just this model and load."""
    found = []
    for model in MODELS:
        for load in LOADS:
            grid = [simulate("timer", delay, model, replicas, load) for delay in DELAYS]
            adaptive = simulate("adaptive", 0.010, model, replicas, load)
            assert adaptive.largest <= MODELS[model][2]
            found.append((adaptive.p99 / min(fixed.p99 for fixed in grid), adaptive.mean / min(fixed.mean for fixed in grid)))
    return found


@pytest.mark.parametrize(("replicas", "worst", "average"), [(1, 1.08, 1.01), (2, 1.15, 1.01), (3, 1.25, 1.01)])
def test_adaptive_is_near_the_best_fixed_delay_without_being_told_the_load(replicas: int, worst: float, average: float) -> None:
    p99, mean = zip(*ratios(replicas), strict=True)
    assert max(p99) <= worst, p99
    assert max(mean) <= 1.15, mean
    assert statistics.fmean(p99) <= average, p99
    assert statistics.fmean(mean) <= average, mean


def test_holding_a_second_replica_back_beats_running_at_once_where_the_fixed_part_dominates() -> None:
    for model, load in (("gpu resnet", 0.1), ("mlp", 0.95)):
        assert simulate("adaptive", 0.010, model, 2, load).p99 < 0.93 * simulate("timer", 0.0, model, 2, load).p99


def test_timer_bounds_the_wait_of_a_replica_that_keeps_up() -> None:
    fixed, per_row, limit = MODELS["cpu small"]
    outcome = simulate("timer", 0.002, "cpu small", 1, 0.1)
    assert outcome.p99 <= 0.002 + 2 * (fixed + per_row * limit)
