"""Row F: no tuning regret. The default policy against fixed settings, for each model, load and number of replicas.

A fixed setting is a policy `timer` with a limit of rows and a delay; each is the daemon started anew. The whole grid takes hours, and simulation
(tests/batching/test_simulation.py) shows that its best is nearly always one of a few: these are measured, and the others only with
WAKEFUL_BENCH_GRID=whole. All settings meet the same callers at the same moments, one setting right after the other in every round.

The best of several noisy figures is better than any of them is: the ratio to the best says more than there is, never less. So beside it stands what
the default gets against a second measurement of itself, in the same rounds: what the machine's noise alone makes of it.
"""

import itertools
import os
import statistics
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bench.context import Context
from bench.models import BenchModel, encoder, magika, tiny
from bench.report import Plot, Row
from bench.runs import calls_for
from bench.servers import Wakeful, wait_quiet
from wakeful.loadgen import arrivals
from wakeful.loadgen.calls import Call
from wakeful.loadgen.driver import closed, open_loop
from wakeful.loadgen.results import Results

WORST_P99, LEAST_THROUGHPUT, LONE_SECONDS = 1.05, 0.98, 0.0001
MODELS = (encoder, magika, tiny)
LOADS: Mapping[str, float] = {"10 %": 0.1, "50 %": 0.5, "80 %": 0.8, "95 %": 0.95}
BURSTS = "bursts"
LULL, BURST, DUTY, PERIOD = 0.1, 1.2, 0.3, 1.0
"""Parts of capacity, the part of the time in which it is high, and seconds."""
DELAYS, LIMITS = (0, 1, 2, 5, 10, 20), (1, 4, 16, 32)
LIKELY = ((1, 0), (4, 0), (16, 0), (32, 0), (16, 5))
"""Limit of rows and milliseconds: the best ones of the whole grid in simulation, and a long delay."""
DEFAULT, AGAIN = "default", "default again"
WARM_SECONDS, CALLERS = 2.0, 32
MOST_RATE = 4000.0
"""Requests a second: beyond that the generator and the daemon, which share the cores, are what is measured."""


@dataclass(frozen=True)
class Setting:
    name: str
    keys: Mapping[str, object] = field(default_factory=dict)


class Case(NamedTuple):
    """What was measured of one model, number of replicas and load."""

    name: str
    p99: dict[str, float]
    """Median of the rounds, by setting."""
    throughput: dict[str, float]
    median: dict[str, float]

    def regret(self, name: str = DEFAULT) -> float:
        return self.p99[name] / min(value for setting, value in self.p99.items() if setting not in (DEFAULT, AGAIN))

    def share(self) -> float:
        return self.throughput[DEFAULT] / max(value for setting, value in self.throughput.items() if setting not in (DEFAULT, AGAIN))


def settings() -> list[Setting]:
    whole = os.environ.get("WAKEFUL_BENCH_GRID") == "whole"
    grid = list(itertools.product(LIMITS, DELAYS)) if whole else list(LIKELY)
    fixed = [
        Setting(f"{limit} rows, {delay} ms", {"batch_policy": "timer", "max_batch_size": limit, "max_batch_delay_ms": delay})
        for limit, delay in grid
    ]
    return [Setting(DEFAULT), *fixed, Setting(AGAIN)]


def rows(context: Context) -> Iterator[Row]:
    lines: list[Mapping[str, object]] = []
    cases: list[Case] = []
    for make in MODELS[:1] if context.quick else MODELS:
        for replicas in (1,) if context.quick else (1, 2):
            cases += _measure(context, (make(),), replicas, lines)
    if not context.quick:
        cases += _measure(context, (encoder(), magika()), 1, lines)
    yield _row(cases, lines)


def _row(cases: Sequence[Case], lines: list[Mapping[str, object]]) -> Row:
    worst = max(cases, key=Case.regret)
    poorest = min(cases, key=Case.share)
    alone = [case for case in cases if "10 %" in case.name and "+" not in case.name]
    waits = max(
        (case.median[DEFAULT] - min(value for name, value in case.median.items() if name.endswith("rows, 0 ms")) for case in alone), default=0.0,
    )
    above = sum(case.regret() > WORST_P99 for case in cases)
    noise = [case.p99[AGAIN] / case.p99[DEFAULT] for case in cases]
    reached = worst.regret() <= WORST_P99 and poorest.share() >= LEAST_THROUGHPUT and waits <= LONE_SECONDS
    middle = statistics.median(case.regret() for case in cases)
    return Row(
        "F", "no tuning regret: the default against the best fixed setting, chosen anew for each model, load and number of replicas",
        f"p99 ≤ {WORST_P99}x, throughput ≥ {LEAST_THROUGHPUT}x, a lone request ≤ +{1e3 * LONE_SECONDS:g} ms",
        f"p99 {middle:.2f}x in the median of {len(cases)} cases, {worst.regret():.2f}x in the worst ({worst.name}), over {WORST_P99}x in {above}; "
        f"throughput {poorest.share():.3f}x at least; a lone request {1e3 * waits:+.2f} ms",
        reached, lines,
        f"Medians of the rounds. The same default measured twice differs by {min(noise):.2f} to {max(noise):.2f}x in p99: a ratio within that "
        "says nothing. A best of many noisy figures is lower than what its setting can hold.",
        (Plot("regret", "p99 of the default, the best fixed setting being 1", {
            "default": [(case.name, case.regret()) for case in cases], "the same again": [(case.name, case.regret(AGAIN)) for case in cases],
        }, y="p99 / best", kind="bars"),),
        near=worst.regret() <= 1.1 * WORST_P99 and poorest.share() >= 0.9 * LEAST_THROUGHPUT,
    )


def _measure(context: Context, models: Sequence[BenchModel], replicas: int, lines: list[Mapping[str, object]]) -> Iterator[Case]:
    name = f"{'+'.join(model.name for model in models)} x{replicas}"
    tried = settings()
    paths = {model.name: model.path for model in models}
    with ExitStack() as stack:
        servers = {
            one.name: stack.enter_context(Wakeful(paths, {"replicas": replicas, "pinned": True, **one.keys}, cache=context.cache / "regret"))
            for one in tried
        }
        calls = {one: [call for model in models for call in calls_for(server, model, binary=True)] for one, server in servers.items()}
        for one, server in servers.items():  # costs are learnt, and the self-test is over
            closed(server.address, calls[one], connections=CALLERS, seconds=WARM_SECONDS)
        for server in servers.values():
            wait_quiet(server)
        capacity = closed(servers[DEFAULT].address, calls[DEFAULT], connections=CALLERS, seconds=WARM_SECONDS).throughput()
        context.say(f"F: {name}: {capacity:.0f} requests/s")
        for load in (*LOADS, BURSTS):
            found: dict[str, list[Results]] = {one: [] for one in servers}
            for turn in range(1, context.rounds + 1):
                moments = _moments(load, min(capacity, MOST_RATE), context.seconds(6.0, 2.5), turn)
                names = list(servers)
                for one in names[turn % len(names) :] + names[: turn % len(names)]:  # nobody always comes first
                    found[one].append(_offer(servers[one], calls[one], moments, turn))
                    lines.append(_line(name, load, one, turn, found[one][-1]))
            case = Case(
                f"{name} {load}",
                {one: statistics.median(results.percentile(99) for results in every) for one, every in found.items()},
                {one: statistics.median(results.throughput() for results in every) for one, every in found.items()},
                {one: statistics.median(results.percentile(50) for results in every) for one, every in found.items()},
            )
            context.say(f"F: {case.name}: p99 {case.regret():.2f}x (again {case.regret(AGAIN):.2f}x), throughput {case.share():.3f}x")
            yield case


def _moments(load: str, capacity: float, seconds: float, turn: int) -> "array[float]":
    if load == BURSTS:
        return arrivals.bursts(LULL * capacity, BURST * capacity, PERIOD, DUTY, seconds, seed=turn)
    return arrivals.poisson(LOADS[load] * capacity, seconds, seed=turn)


def _offer(server: Wakeful, calls: Sequence[Call], moments: "array[float]", turn: int) -> Results:
    results = open_loop(server.address, calls, moments, order=_order(len(calls), len(moments), turn))
    return results.warmed(0.1 * moments[-1])


def _order(calls: int, count: int, turn: int) -> list[int]:
    """Models at random, and the same for every setting."""
    order: list[int] = np.random.default_rng(turn).integers(calls, size=count).tolist()
    return order


def _line(case: str, load: str, setting: str, turn: int, results: Results) -> Mapping[str, object]:
    return {
        "case": case, "load": load, "setting": setting, "round": turn, "answers/s": round(results.throughput(), 1),
        "p50 ms": round(1e3 * results.percentile(50), 3), "p95 ms": round(1e3 * results.percentile(95), 3),
        "p99 ms": round(1e3 * results.percentile(99), 3), "failed": len(results) - results.ok(), "generator CPU %": round(100 * results.busy()),
        "lag ms": round(1e3 * results.lag, 2),
    }
