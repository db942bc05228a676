"""Row G: with a latency target, twice the load that can be served costs hardly any of the answers that come in time; the rest is refused at once.

Capacity is what few callers in a closed loop get. Around it and at twice of it, callers come at random (the same moments in each round), and
answers within the target are counted. The best of the loads about capacity is the peak.
"""

import http.client
import threading
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from bench.context import Context
from bench.models import BenchModel, encoder, magika
from bench.report import Plot, Row
from bench.runs import calls_for, spread
from bench.servers import Server, Wakeful, wait_quiet
from wakeful.loadgen.arrivals import poisson
from wakeful.loadgen.calls import Call
from wakeful.loadgen.driver import closed, open_loop
from wakeful.loadgen.results import Results

SHARE = 0.90
LOADS = (0.7, 0.85, 1.0, 1.2)
"""Parts of capacity among which the peak is looked for."""
OVERLOAD = 2.0
TARGETS = (("encoder", 0.100), ("magika", 0.100))
"""Seconds: about fifteen lone runs, so that batches have room."""
CALLERS = 12
"""In the closed loop, for each replica: enough to keep it busy, too few to be refused."""
WARM_SECONDS = 3.0
RAMP = 0.5
"""Seconds at the beginning of each load that do not count."""
MODELS = {"encoder": encoder, "magika": magika}


class Measured(NamedTuple):
    shares: list[float]
    """Goodput at twice the capacity, relative to the peak: a figure of each round."""
    lines: list[Mapping[str, object]]
    curve: list[tuple[float, float]]
    """Load and goodput, both relative to capacity."""
    clean: bool
    """Nothing but answers and refusals, with advice where it was looked for."""
    advised: bool
    """It was seen; where hardly anybody is refused, the caller who looks may not be."""
    refusal_p99: float


def rows(context: Context) -> Iterator[Row]:
    found: dict[str, Measured] = {}
    for name, target in TARGETS:
        for replicas in (1, 2):
            found[f"{name} x{replicas}"] = _measure(context, MODELS[name](), target, replicas)
    medians = {name: spread(one.shares) for name, one in found.items()}
    worst = min(one.median for one in medians.values())
    clean = all(one.clean for one in found.values()) and any(one.advised for one in found.values())
    yield Row(
        "G", "target_p99_ms at 2x overload: answers within the target, against the best of all loads",
        f"≥ {SHARE:.0%}, the rest 429 with Retry-After",
        "; ".join(f"{name} {100 * one.median:.0f} % ({100 * one.low:.0f} to {100 * one.high:.0f})" for name, one in medians.items())
        + ("" if clean else "; not all others were refused with 429 and Retry-After"),
        worst >= SHARE and clean, [line for one in found.values() for line in one.lines],
        f"Target: {', '.join(f'{name} {1e3 * target:.0f} ms' for name, target in TARGETS)}. Callers come at random, and latency counts from the "
        f"moment at which they were due. 99 % of the refusals took at most {1e3 * max(one.refusal_p99 for one in found.values()):.1f} ms.",
        (Plot("goodput", "Answers within the target, by load", {name: one.curve for name, one in found.items()}, x="load / capacity",
              y="goodput / capacity", kind="lines"),),
        near=worst >= 0.9 * SHARE and clean,
    )


def _measure(context: Context, model: BenchModel, target: float, replicas: int) -> Measured:
    settings = {"target_p99_ms": 1e3 * target, "replicas": replicas, "pinned": True}
    seconds = context.seconds(5.0, 2.0)
    lines: list[Mapping[str, object]] = []
    shares, refusals, clean, advised = [], [0.0], True, False
    goodput: dict[float, list[float]] = {}
    with Wakeful({model.name: model.path}, settings) as server:
        calls = calls_for(server, model, binary=True)
        closed(server.address, calls, connections=CALLERS * replicas, seconds=WARM_SECONDS)
        wait_quiet(server)
        capacity = closed(server.address, calls, connections=CALLERS * replicas, seconds=seconds).throughput()
        context.say(f"G: {model.name} x{replicas}: {capacity:.0f} requests/s")
        for turn in range(1, context.rounds + 1):
            for load in (*LOADS, OVERLOAD):
                advice: list[str | None] = []
                results = _offer(server, calls, load * capacity, seconds, turn, advice if load == OVERLOAD else None)
                goodput.setdefault(load, []).append(results.within(target))
                status, took = np.asarray(results.status), np.asarray(results.seconds)
                refused = took[status == http.HTTPStatus.TOO_MANY_REQUESTS]
                clean &= bool(np.isin(status, (200, 429)).all()) and all(advice)
                advised |= bool(advice)
                refusals += [float(np.percentile(refused, 99))] if len(refused) else []
                lines.append({
                    "model": model.name, "replicas": replicas, "round": turn, "load": load, "offered/s": round(load * capacity),
                    "in time/s": round(results.within(target), 1), "answered/s": round(results.throughput(), 1),
                    "p99 ms": round(1e3 * results.percentile(99), 1), "refused %": round(100 * len(refused) / len(results), 1),
                    "refusal p99 ms": round(1e3 * refusals[-1], 2) if len(refused) else "", "other": int((~np.isin(status, (200, 429))).sum()),
                    "generator CPU %": round(100 * results.busy()), "lag ms": round(1e3 * results.lag, 2),
                })
            shares.append(goodput[OVERLOAD][-1] / max(goodput[load][-1] for load in LOADS))
            context.say(f"G: {model.name} x{replicas}, round {turn} of {context.rounds}: {100 * shares[-1]:.0f} %")
    curve = [(load, spread(values).median / capacity) for load, values in goodput.items()]
    return Measured(shares, lines, curve, clean, advised, max(refusals))


def _offer(server: Server, calls: list[Call], rate: float, seconds: float, turn: int, advice: list[str | None] | None) -> Results:
    """Random callers for some seconds. `advice`: gets the Retry-After of refusals that one more caller meets."""
    asker = threading.Thread(target=_ask, args=(server, calls[0], seconds, advice), daemon=True) if advice is not None else None
    if asker is not None:
        asker.start()
    results = open_loop(server.address, calls, poisson(rate, RAMP + seconds, seed=turn))
    if asker is not None:
        asker.join()
    time.sleep(0.2)
    return results.warmed(RAMP)


def _ask(server: Server, call: Call, seconds: float, advice: list[str | None]) -> None:
    head, _, body = call.data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    connection = http.client.HTTPConnection(*server.address, timeout=30)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection.request("POST", lines[0].split()[1], body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status == http.HTTPStatus.TOO_MANY_REQUESTS:
            advice.append(answer.getheader("Retry-After"))
        time.sleep(0.05)
    connection.close()
