"""One run of one server, and what several of them say together."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bench.models import BenchModel
from bench.servers import Server, Wakeful
from wakeful.loadgen.calls import Call, infer_call
from wakeful.loadgen.driver import closed
from wakeful.loadgen.results import Results

VARIETY = 8
"""Different requests that are sent in turn, so that nothing which remembers one can shine."""
FEW = 10
"""So many answers say little about where a batch ends."""
TOGETHER = 0.005
"""Seconds within which the answers of one batch come."""


class Rejected(Exception):
    """A server answered something else than results."""


@dataclass(frozen=True)
class Run:
    server: str
    turn: int
    connections: int
    per_second: float
    """Answered requests."""
    p50: float
    p95: float
    p99: float
    """Seconds."""
    cpu: float
    """Processor seconds of the server's processes for each answered request."""
    pss: int
    batch: float
    """Mean rows of a run of the model; 0: this server does not say."""
    generator: float
    """Share of one core that the load generator used."""
    failed: int

    def line(self) -> dict[str, object]:
        """A line of a table."""
        return {
            "server": self.server, "round": self.turn, "connections": self.connections, "requests/s": round(self.per_second, 1),
            "p50 ms": round(1e3 * self.p50, 3), "p95 ms": round(1e3 * self.p95, 3), "p99 ms": round(1e3 * self.p99, 3),
            "server CPU us/request": round(1e6 * self.cpu, 1), "memory MiB": round(self.pss / 2**20, 1),
            "rows/batch": round(self.batch, 2) if self.batch else "", "generator CPU %": round(100 * self.generator), "failed": self.failed,
        }


def calls_for(server: Server, model: BenchModel, *, rows: int = 1, binary: bool = False, variety: int = VARIETY) -> list[Call]:
    """Requests of this model in the form that the server takes."""
    host, path = f"{server.address[0]}:{server.address[1]}", server.path(model.name)
    return [
        infer_call(host, model.name, model.inputs(rows, seed), binary=binary and server.binary, path=path, label=model.name)
        for seed in range(variety)
    ]


def drive(
    server: Server, calls: Sequence[Call], *, connections: int, seconds: float, warmup: float = 0.5, ramp: float = 0.0, turn: int = 0,
    model: str = "",
) -> Run:
    """A closed loop. Raises Rejected if hardly anything was answered.

    `warmup` comes before, with its own end. Where a run of the model is long, that would let the queues run dry: `ramp` is what is left out at
    the beginning instead.
    """
    if warmup:
        closed(server.address, calls, connections=connections, seconds=warmup)
    batches, cpu = _batches(server, model), server.tree_cpu()
    results = closed(server.address, calls, connections=connections, seconds=seconds, warmup=ramp)
    spent, after = server.tree_cpu() - cpu, _batches(server, model)
    good = results.ok()
    if good < max(1, len(results.status) // 2):
        raise Rejected(f"{server.name} answered {good} of {len(results.status)} requests; statuses: {statuses(results)}\n{server.log()[-500:]}")
    rows, runs = after[0] - batches[0], after[1] - batches[1]
    answered = good if not ramp else rows / calls[0].rows  # what was answered in the ramp is not in the results
    return Run(
        server.name, turn, connections, throughput(results),
        p50=results.percentile(50), p95=results.percentile(95), p99=results.percentile(99),
        cpu=spent / answered if answered else math.nan, pss=server.tree_pss(), batch=rows / runs if runs else 0.0, generator=results.busy(),
        failed=len(results) - good,
    )


def throughput(results: Results) -> float:
    """Answers a second between the first and the last of them in the measured time.

    Answers of a batch come together: of a few large batches, a window that begins and ends anywhere would count one more or one less.
    """
    ends = np.asarray(results.start) + np.asarray(results.seconds)
    status = np.asarray(results.status)
    ends = np.sort(ends[(status >= 200) & (status < 300) & (ends <= results.wall)])
    ends = ends[ends >= 0]
    if len(ends) < FEW or ends[-1] - ends[0] < 0.5 * results.wall:
        return results.throughput()
    later = ends[ends > ends[0] + TOGETHER]
    return len(later) / float(ends[-1] - ends[0])


def statuses(results: Results) -> str:
    counts = {status: results.status.count(status) for status in set(results.status)}
    return ", ".join(f"{count} x {status or 'no answer'}" for status, count in sorted(counts.items())) or "none"


def _batches(server: Server, model: str) -> tuple[float, float]:
    """Rows and runs so far."""
    if not (model and isinstance(server, Wakeful)):
        return 0.0, 0.0
    return server.metric("wakeful_batch_rows_sum", model=model), server.metric("wakeful_batch_rows_count", model=model)


class Spread(NamedTuple):
    """A figure of every round."""

    median: float
    low: float
    high: float

    def show(self, form: str = ".2f", unit: str = "") -> str:
        return f"{self.median:{form}}{unit} ({self.low:{form}} to {self.high:{form}})"


def spread(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    return Spread(statistics.median(ordered), ordered[0], ordered[-1])


def ratios(ours: Iterable[float], theirs: Iterable[float]) -> Spread:
    """Of values that were measured one right after the other, round by round: what slows the machine down slows both."""
    return spread(one / other for one, other in zip(ours, theirs, strict=True))


def middle(lines: Iterable[Mapping[str, float]], figure: str) -> float:
    """The median of one column of a table."""
    return statistics.median(line[figure] for line in lines)
