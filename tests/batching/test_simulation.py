"""No tuning regret, in simulation: the default policy against fixed settings that were chosen anew for each model and load.

The whole grid, for the figures of docs/decisions: python -m tests.batching.test_simulation
"""

import statistics
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.batching.simulation import HANDOVER, MODELS, Cost, Outcome, Pace, alone, capacity, linear, shared, simulate
from wakeful.admission import admit
from wakeful.batching.batcher import Batcher
from wakeful.config.settings import AdmissionSettings, BatchingSettings, ModelSettings
from wakeful.inference import InferRequest
from wakeful.loadgen import arrivals

LOADS = ("10 %", "50 %", "80 %", "95 %", "bursts")
DELAYS = (0.0, 0.001, 0.002, 0.005, 0.010, 0.020)
LIMITS = (1, 4, 16, 32)
LIKELY = ((1, 0.0), (4, 0.0), (16, 0.0), (32, 0.0), (32, 0.010))
"""Row limit and delay of the fixed settings that are best nearly everywhere in the whole grid."""
BURST, LULL, DUTY = 1.2, 0.1, 0.3
"""Parts of capacity, and for which part of the time."""
BURST_ROWS = 500.0
SHARED = 1.25
"""Arrivals on a `shared` machine are thinner by as much, since runs take 1.2 times as long there on average."""


class Case(NamedTuple):
    model: str
    replicas: int
    load: str

    @property
    def rate(self) -> float:
        """Rows a second at capacity."""
        return capacity(MODELS[self.model]) * self.replicas

    def arrivals(self, rows: int) -> "array[float]":
        if self.load != "bursts":
            rate = self.rate * int(self.load.split()[0]) / 100
            return arrivals.poisson(rate, rows / rate)
        mean = self.rate * (DUTY * BURST + (1 - DUTY) * LULL)
        return arrivals.bursts(LULL * self.rate, BURST * self.rate, BURST_ROWS / mean, DUTY, rows / mean)

    def stable(self, limit: int) -> bool:
        """Can runs of so many rows keep up at all?"""
        most = limit / MODELS[self.model](limit) * self.replicas
        return self.load == "bursts" or most > self.rate * int(self.load.split()[0]) / 100


@cache
def default(case: Case, rows: int) -> Outcome:
    return simulate(MODELS[case.model], case.arrivals(rows), BatchingSettings(), case.replicas)


def fixed(case: Case, rows: int, grid: Iterable[tuple[int, float]]) -> Iterator[tuple[Outcome, int, float]]:
    for limit, delay in grid:
        if case.stable(limit):
            yield simulate(MODELS[case.model], case.arrivals(rows), BatchingSettings("timer", "auto", limit, delay), case.replicas), limit, delay


def regret(case: Case, rows: int, grid: Sequence[tuple[int, float]]) -> float:
    """p99 of the default policy relative to that of the best fixed setting."""
    return default(case, rows).p99 / min(outcome.p99 for outcome, _, _ in fixed(case, rows, grid))


def regret_when_shared(case: Case, rows: int, seed: int) -> float:
    """The same on a machine that others use too, against three likely fixed settings."""
    coming = [SHARED * moment for moment in case.arrivals(rows)]

    def p99(settings: BatchingSettings) -> float:
        return simulate(MODELS[case.model], coming, settings, case.replicas, pace=shared(seed)).p99

    return p99(BatchingSettings()) / min(p99(BatchingSettings("timer", "auto", limit, 0.0)) for limit in (4, 16, 32))


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_default_is_near_the_best_fixed_setting_without_being_told_model_or_load(replicas: int) -> None:
    cases = [Case(model, replicas, load) for model in ("encoder", "magika", "gpu resnet") for load in ("50 %", "95 %", "bursts")]
    ratios = {case: regret(case, 2500, LIKELY) for case in cases}
    assert max(ratios.values()) <= 1.35, ratios
    assert statistics.fmean(ratios.values()) <= 1.08, ratios


@pytest.mark.parametrize("model", ["encoder", "magika"])
def test_a_queue_that_grows_in_a_slow_moment_shrinks_again(model: str) -> None:
    """Larger runs of these models take longer for each row, so a queue that is served in large runs need not become shorter."""
    ratios = [regret_when_shared(Case(model, 1, "95 %"), 2500, seed) for seed in range(4)]
    assert max(ratios) <= 2.0, ratios
    assert statistics.fmean(ratios) <= 1.4, ratios


@pytest.mark.parametrize("model", MODELS)
def test_a_lone_request_never_waits(model: str) -> None:
    lone = MODELS[model](1) + HANDOVER
    ours = simulate(MODELS[model], arrivals.poisson(0.1 / lone, 1000 * 10 * lone), BatchingSettings()).latencies
    assert statistics.median(ours) == pytest.approx(lone)


def test_small_runs_serve_a_model_better_whose_rows_dominate_and_large_ones_a_model_with_a_fixed_part() -> None:
    for model, least, most in (("resnet", 1.0, 1.6), ("gpu resnet", 12.0, 64.0)):
        case = Case(model, 1, "80 %")
        rows = len(case.arrivals(2000)) / len(default(case, 2000).runs)
        assert least <= rows <= most, model


@pytest.mark.parametrize(("cost", "target"), [(linear(0.001, 0.0025), 0.050), (linear(0.004, 0.00025), 0.030), (linear(0.0, 0.005), 0.060)])
@pytest.mark.parametrize("replicas", [1, 2])
def test_overload_hardly_lessens_what_is_answered_within_the_target(cost: Cost, target: float, replicas: int) -> None:
    """Twice what the replicas can do, from a start where nothing is known: at least 90 % of the best goodput of any load."""
    settings = ModelSettings("m", batching=BatchingSettings(target_p99=target), path=Path("m.onnx"))

    def door(request: InferRequest, batcher: Batcher) -> None:
        admit(request, settings, batcher)

    def offered(load: float) -> Outcome:
        rate = load * capacity(cost) * replicas
        return simulate(cost, arrivals.poisson(rate, max(3000 / rate, 1.0)), settings.batching, replicas, door)

    peak = max(offered(load).within(target) for load in (0.8, 0.9, 1.0, 1.2))
    overloaded = offered(2.0)
    assert overloaded.within(target) >= 0.9 * peak
    assert overloaded.p99 <= 1.25 * target
    assert {error.code for error in overloaded.refused} == {"overloaded"}


@pytest.mark.parametrize(("pace", "least", "late"), [(alone, 0.98, 0.0), (shared(1), 0.8, 0.12)])
def test_overload_leaves_what_was_accepted_within_its_deadline(pace: Pace, least: float, late: float) -> None:
    """Twice what a replica can do, for 20 s. Where runs suddenly take twice as long, some of what was accepted before is late; that much less is
    promised from then on. (Of those who were accepted, three in ten were late when admission promised all that the deadline left.)"""
    cost, rows = linear(0.020, 0.002), 8
    settings = ModelSettings(
        "m", Path("m.onnx"), batching=BatchingSettings(max_rows=rows), admission=AdmissionSettings(request_timeout=0.5),
    )

    def door(request: InferRequest, batcher: Batcher) -> None:
        admit(request, settings, batcher)

    rate = rows / cost(rows)
    outcome = simulate(cost, arrivals.poisson(2.0 * rate, 20.0), settings.batching, 1, door, pace)
    missed = sum(error.code != "overloaded" for error in outcome.refused)
    assert missed <= late * len(outcome.latencies)
    assert outcome.within(0.5) >= least * rate


def main() -> None:
    """Print the whole grid."""
    grid = [(limit, delay) for limit in LIMITS for delay in DELAYS]
    cases = [Case(model, replicas, load) for model in MODELS for replicas in (1, 2) for load in LOADS]
    ratios = []
    for case in cases:
        outcome, limit, delay = min(fixed(case, 8000, grid), key=lambda found: found[0].p99)
        ours = default(case, 8000)
        ratios.append(ours.p99 / outcome.p99)
        print(
            f"{case.model:12}x{case.replicas} {case.load:>7}   best {limit:2} rows {1e3 * delay:3.0f} ms: p99 {1e3 * outcome.p99:8.2f} ms   "
            f"default {ratios[-1]:.3f}, {len(ours.latencies) / len(ours.runs):4.1f} rows", flush=True,
        )
    _sum_up(ratios)
    print("on a machine that others use too, four times each:")
    ratios = []
    for case in cases:
        ratios.append(statistics.fmean(regret_when_shared(case, 3000, seed) for seed in range(4)))
        print(f"{case.model:12}x{case.replicas} {case.load:>7}   default {ratios[-1]:.3f}", flush=True)
    _sum_up(ratios)


def _sum_up(ratios: list[float]) -> None:
    over, mean = sum(ratio > 1.05 for ratio in ratios), statistics.fmean(ratios)
    print(f"{len(ratios)} cases: worst {max(ratios):.3f}, mean {mean:.3f}, median {statistics.median(ratios):.3f}, over 1.05: {over}")


if __name__ == "__main__":
    main()
