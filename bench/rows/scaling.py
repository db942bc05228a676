"""Rows J and L: what a further replica costs, and how soon more of them absorb a step in the load."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import uvloop

from bench.asleep import Warm, wait_prepared, warm_process
from bench.context import Context
from bench.hatchery import Hatchery
from bench.models import BenchModel, encoder
from bench.report import Plot, Row
from bench.runs import middle
from bench.servers import Wakeful
from wakeful.loadgen.arrivals import steps
from wakeful.loadgen.calls import infer_call
from wakeful.loadgen.driver import closed, open_loop
from wakeful.loadgen.results import Results

SHARE_SECONDS, SHARE_PRIVATE = 0.15, 0.03
LOW, HIGH = 0.1, 1.5
"""Load before and after the step, in capacities of one replica."""
WINDOW = 0.2
"""Seconds of arrivals whose 99th percentile is looked at together."""
STEADY_WINDOWS = 3
"""Windows in a row that must be good: a single one may be so by luck."""
ABSORBED_SECONDS = 1.0


def rows(context: Context) -> Iterator[Row]:
    model = encoder()
    with warm_process(model) as warm:
        yield uvloop.run(_copies(context, model, warm))
    yield _step(context, model)


# J ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _copies(context: Context, model: BenchModel, warm: Warm) -> Row:
    hatchery = Hatchery(model.path, model.inputs())
    details: list[Mapping[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        await hatchery.prepare(Path(directory))
        for number in range(max(2 * context.rounds, 5)):
            context.say(f"J: copy {number + 1}")
            created, _, stock_private = warm.stock()
            run: dict[str, float] = {"stock_session_ms": 1e3 * created, "stock_private_mb": stock_private / 1e6}
            for kind, prepared in (("shipped", None), ("prepared", Path(directory))):
                original = await hatchery.fresh(prepared)
                own = await original.private_bytes()
                copy = await hatchery.copy(original.replica)
                copy_own = await copy.private_bytes()
                run |= {
                    f"{kind}_ms": 1e3 * original.seconds, f"{kind}_private_mb": own / 1e6, f"{kind}_copy_ms": 1e3 * copy.seconds,
                    f"{kind}_copy_private_mb": copy_own / 1e6,
                }
                copy.end()
                original.end()
            details.append(run)
    hatchery.close()

    private, session = middle(details, "shipped_private_mb"), middle(details, "stock_session_ms")
    shares = [
        (middle(details, f"{kind}_copy_private_mb") / private, middle(details, f"{kind}_copy_ms") / session) for kind in ("prepared", "shipped")
    ]
    measured = ", ".join(
        f"{kind} {memory:.1%} and {seconds:.2f}x" for kind, (memory, seconds) in zip(("prepared", "as shipped"), shares, strict=True)
    )
    reached = all(memory <= SHARE_PRIVATE and seconds <= SHARE_SECONDS for memory, seconds in shares)
    return Row(
        "J", "a further replica of the live encoder: private memory against the first stock one; decision to first answer",
        f"≤ {SHARE_PRIVATE:.0%}; ≤ {SHARE_SECONDS:g}x of creating the stock session", measured, reached, details,
    )


# L ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _step(context: Context, model: BenchModel) -> Row:
    call = infer_call("127.0.0.1", model.name, model.inputs())
    details: list[Mapping[str, float]] = []
    windows: list[tuple[float | str, float]] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        cache = Path(directory)
        with Wakeful({model.name: model.path}, {"replicas": 1, "threads": 1}, cache=cache) as server:
            closed(server.address, [call], connections=1, seconds=1.0)
            wait_prepared(server, model.name)
            capacity = closed(server.address, [call], connections=8, seconds=context.seconds(4, 2), warmup=1.0).throughput()
        before, after = context.seconds(3, 2), context.seconds(6, 4)
        for number in range(max(context.rounds, 3)):
            context.say(f"L: step {number + 1}, one replica does {capacity:.0f}/s")
            with Wakeful({model.name: model.path}, {"threads": 1}, cache=cache) as server:
                closed(server.address, [call], connections=1, seconds=0.5)
                since = int(server.events()[-1]["seq"])
                arrivals = steps([(before, LOW * capacity), (after, HIGH * capacity)], seed=number + 1)
                results = open_loop(server.address, [call], arrivals)
                grown = server.events(since=since, kind="load")
            seconds, steady, windows = absorbed(results, before, after)
            details.append({
                "absorbed_s": seconds, "steady_p99_ms": 1e3 * steady, "worst_p99_ms": max(p99 for _, p99 in windows),
                "capacity_per_s": capacity, "answers_per_s": results.throughput(), "failed": len(results) - results.ok(), "copies": len(grown),
            })
    taken = middle(details, "absorbed_s")
    plot = Plot("step", "A step from 10 % to 150 % of one replica's capacity", {"p99 of 0.2 s": windows}, "seconds from the step", "ms", log_y=True)
    return Row(
        "L", "scale-out: a step from 10 % to 150 % of one single-threaded replica's capacity, until p99 is back under 2x its steady value",
        f"≤ {ABSORBED_SECONDS:g} s", f"{taken:.1f} s", taken <= ABSORBED_SECONDS, details, plots=(plot,),
    )


def absorbed(results: Results, step: float, seconds: float) -> tuple[float, float, list[tuple[float | str, float]]]:
    """Seconds from the step until p99 is back under twice its steady value, that value, and the windows (from the step, in ms).

    Steady is what the second half after the step shows.
    """
    start, took = np.frombuffer(results.start) - step, np.nan_to_num(np.frombuffer(results.seconds), nan=np.inf)
    edges = np.arange(0.0, seconds, WINDOW)
    p99 = [float(np.percentile(chosen, 99)) if len(chosen := took[(start >= edge) & (start < edge + WINDOW)]) else 0.0 for edge in edges]
    steady = float(np.median(p99[len(p99) // 2 :]))
    good = [value <= 2 * steady for value in p99]
    worse = next((index for index, one in enumerate(good) if not one), 0)  # the first windows are good: the queue has yet to grow
    back = next((index for index in range(worse, len(good)) if all(good[index : index + STEADY_WINDOWS])), len(good))
    return WINDOW * back, steady, [(float(edge), 1e3 * value) for edge, value in zip(edges, p99, strict=True)]
