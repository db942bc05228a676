"""Row D: real models with more callers than can be served, default settings, against the raw limit of the same cores in the same round."""

import statistics
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.context import Context
from bench.models import MODELS, BenchModel
from bench.raw import Configuration, RawLimit, details
from bench.report import Plot, Row
from bench.runs import Run, Spread, calls_for, drive, ratios
from bench.servers import Server, Wakeful, wait_quiet

SHARE = 0.95
NAMES = ("encoder", "resnet50", "magika")
QUEUED_SECONDS, LEAST, MOST = 1.5, 16, 128
"""Callers: as many as the raw limit serves in so long, so that batches fill up and yet nobody waits for ever."""
RAMP = 1.0
"""Seconds at the beginning of a run, while the queues fill."""
ROWS = (200.0, 60.0)
"""Rows of a run at least, in full and quick: a slow model gets more time."""
LONGEST = (15.0, 4.0)
"""Seconds of a run at most: a model for which that is not enough rows is measured by fewer."""
CANDIDATES = 3
"""Static configurations that are measured again in every round: a search of brief runs does not tell the best of the best."""
WAKE_SECONDS = 0.5
STABLE_SECONDS, SETTLE_SECONDS = 4.0, 30.0
"""The number of replicas has not changed for so long, or will not be waited for any longer."""


class Measured(NamedTuple):
    model: str
    share: Spread
    lines: list[Mapping[str, object]]
    searched: list[Mapping[str, object]]


def rows(context: Context) -> Iterator[Row]:
    found = [_model(context, MODELS[name]()) for name in NAMES]
    worst = min(one.share.median for one in found)
    bars = {"share of the raw limit": [(one.model, 100 * one.share.median) for one in found]}
    yield Row(
        "D", "encoder (16 tokens), ResNet-50, magika at saturation, default settings: rows/s against the raw limit", f"≥ {SHARE:.0%} each",
        "; ".join(f"{one.model} {100 * one.share.median:.0f} % ({100 * one.share.low:.0f} to {100 * one.share.high:.0f})" for one in found),
        worst >= SHARE, [line for one in found for line in (*one.lines, *one.searched)],
        "The raw limit is ONNX Runtime alone in the best of all static configurations that fill the cores. The load generator uses the same cores: "
        "its share is in the table.",
        (Plot("share", "At saturation, against the raw limit", bars, y="%", kind="bars"),), near=worst >= 0.9 * SHARE,
    )


def _model(context: Context, model: BenchModel) -> Measured:
    lines: list[Mapping[str, object]] = []
    ours: list[float] = []
    with RawLimit(model.name) as raw, Wakeful({model.name: model.path}) as server:
        context.say(f"D: {model.name}, looking for the best static configuration")
        tried = raw.search(context.seconds(30.0, 5.0))
        capacity = tried[0].rows_per_second
        limits: dict[Configuration, list[float]] = {one.configuration: [] for one in tried[:CANDIDATES]}
        connections = min(max(LEAST, round(QUEUED_SECONDS * capacity)), MOST)
        seconds = min(max(context.seconds(6.0, 2.5), context.seconds(*ROWS) / capacity), context.seconds(*LONGEST))
        context.say(f"D: {model.name}, warming up")
        settle(server, model, connections, context.seconds(SETTLE_SECONDS, 6.0))
        for turn in range(1, context.rounds + 1):
            for one, rates in limits.items():
                rates.append(raw.rate(one, 0.5 * seconds))
            run = _saturated(server, model, connections, seconds, turn)
            ours.append(run.per_second)
            alone = ", ".join(f"{rates[-1]:.0f} ({one})" for one, rates in limits.items())
            context.say(f"D: {model.name}, round {turn} of {context.rounds}: {ours[-1]:.0f} rows/s, ONNX Runtime alone {alone}")
            lines.append({
                "model": model.name, "configuration": "Wakeful", "rows/s": round(run.per_second, 1),
                "replicas": replicas(server, model), **run.line(),
            })
    best = max(limits, key=lambda one: statistics.median(limits[one]))  # one for all rounds: the luckiest of each would not be static
    lines = [
        {**line, "raw": str(best), "raw rows/s": round(limit, 1), "share": round(rate / limit, 3)}
        for line, rate, limit in zip(lines, ours, limits[best], strict=True)
    ]
    return Measured(model.name, ratios(ours, limits[best]), lines, list(details(tried[:5], model.name)))


def settle(server: Server, model: BenchModel, connections: int, most: float) -> None:
    """Wake it, wait until it has been tested and prepared, then load it until it has decided how many replicas it wants, and how large its batches
    should be."""
    drive(server, calls_for(server, model, binary=True), connections=1, seconds=WAKE_SECONDS, warmup=0.0)
    wait_quiet(server)
    end, since, count = time.monotonic() + most, time.monotonic(), 0
    while time.monotonic() < end and time.monotonic() - since < STABLE_SECONDS:
        _saturated(server, model, connections, 1.0, 0)
        if (now := replicas(server, model)) != count:
            since, count = time.monotonic(), now


def replicas(server: Server, model: BenchModel) -> int:
    return int(server.metric("wakeful_replicas", model=model.name)) if isinstance(server, Wakeful) else 0


def _saturated(server: Server, model: BenchModel, connections: int, seconds: float, turn: int) -> Run:
    calls = calls_for(server, model, binary=True)
    return drive(server, calls, connections=connections, seconds=seconds, warmup=0.0, ramp=RAMP, turn=turn, model=model.name)
