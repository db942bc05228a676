"""Rows M and N: that a model which sleeps costs next to nothing, and that cost grows with the work alone."""

import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.asleep import Caller, put_to_sleep, wait_prepared, warm_process
from bench.context import Context
from bench.models import encoder, tiny
from bench.report import Row
from bench.rows.waking import SHARE_PREPARED
from bench.runs import middle
from bench.servers import Wakeful, wait_quiet
from wakeful.loadgen.calls import Call, infer_call
from wakeful.loadgen.driver import closed

MODELS = 1000
START_SECONDS, MODEL_KB = 1.5, 30.0
IN_TURN, CONNECTIONS = 100, (100, 1000)
MORE = 1.3
"""Most that the CPU of a request may grow by."""
COLD = (
    "Each request wakes another process. In a trial the daemon took 5 to 30 % more CPU a request and the replicas about twice as much, 10 models "
    "in turn being half-way; context switches were the same. The samples spread over the interpreter, with 5 % in the kernel's spin locks that one "
    "model does not show. Processes whose memory has left the processor's caches would look like this; "
    "no counter of the hardware was there to prove it."
)


def rows(context: Context) -> Iterator[Row]:
    yield _registered(context)
    yield _in_turn(context)


# M ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _registered(context: Context) -> Row:
    """The files are links to one encoder, so that any of them can be woken as row H does."""
    model = encoder()
    details: list[Mapping[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=model.path.parent) as directory:  # links cannot leave the file system
        paths = {}
        for number in range(MODELS):
            path = Path(directory) / f"m{number:04}.onnx"
            os.link(model.path, path)
            paths[f"m{number:04}"] = path
        cache = Path(directory) / "cache"
        time.sleep(4.0)  # a directory that has just changed is looked at with more care
        first = next(iter(paths.items()))
        for _ in range(max(context.rounds, 3)):
            context.say(f"M: starting with {MODELS} models, and with one")
            one, many = _fresh({first[0]: first[1]}, cache), _fresh(paths, cache)
            details.append({
                "start_s": many["start"], "start_of_one_s": one["start"], "kb_a_model": (many["pss"] - one["pss"]) / 1000 / (MODELS - 1),
                "scrape_ms": 1e3 * many["scrape"], "scrape_kb": many["page"] / 1000,
            })
        ratios = _wake_some(context, paths, cache)
    start, each, ratio = middle(details, "start_s"), middle(details, "kb_a_model"), statistics.median(ratios)
    details += [{"wake_ratio": value} for value in ratios]
    return Row(
        "M", f"{MODELS} registered models, all asleep: start-up; memory per model; a request to a random one",
        f"≤ {START_SECONDS} s; ≤ {MODEL_KB:.0f} KB; as H", f"{start:.2f} s; {each:.1f} KB; {ratio:.2f}x",
        start <= START_SECONDS and each <= MODEL_KB and ratio <= SHARE_PREPARED, details,
    )


def _fresh(paths: Mapping[str, Path], cache: Path) -> dict[str, float]:
    began = time.perf_counter()
    with Wakeful(paths, cache=cache) as server:
        start = time.perf_counter() - began
        wait_quiet(server)
        pss = server.tree_pss()
        asked = time.perf_counter()
        page = server.call("GET", "/metrics")[1]
        return {"start": start, "pss": float(pss), "scrape": time.perf_counter() - asked, "page": float(len(page))}


def _wake_some(context: Context, paths: Mapping[str, Path], cache: Path) -> list[float]:
    """Wakes of random models, each prepared before, against creating the stock session."""
    model = encoder()
    ratios: list[float] = []
    chosen = random.Random(1).sample(sorted(paths), 5 if context.quick else 9)
    with Wakeful(paths, cache=cache) as server, Caller(server.address) as caller, warm_process(model) as warm:
        for name in chosen:
            context.say(f"M: waking {name}")
            call = infer_call("127.0.0.1", name, model.inputs(), binary=True)
            caller.ask(call)
            if not ratios:
                wait_prepared(server, name)
            time.sleep(1.0)  # the copy of the first serves all: they have the same content
            put_to_sleep(server, name)
            woken = caller.ask(call)
            ratios.append(woken / warm.stock()[0])
            put_to_sleep(server, name)
    return ratios


# N ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _in_turn(context: Context) -> Row:
    """The models take turns for one caller: with more of them, requests for one model would find each other and share runs, those for many would not,
    and that is work, not cost."""
    model = tiny()
    names = [f"m{number:03}" for number in range(IN_TURN)]
    details: list[Mapping[str, float]] = []
    seconds = context.seconds(5, 3)
    with Wakeful(dict.fromkeys(names, model.path)) as server:
        calls = [infer_call("127.0.0.1", name, model.inputs()) for name in names]
        closed(server.address, calls, connections=1, seconds=60, most=4 * len(calls))  # all awake and tested
        for number in range(context.rounds):
            context.say(f"N: round {number + 1}")
            details.append({
                "one_model_us": _cpu_a_request(server, calls[:1], 1, seconds), f"{IN_TURN}_models_us": _cpu_a_request(server, calls, 1, seconds),
            } | {f"{count}_connections_us": _cpu_a_request(server, calls[:1], count, seconds) for count in CONNECTIONS})

    def growth(more: str, less: str) -> float:
        return statistics.median(run[more] / run[less] for run in details)

    models = growth(f"{IN_TURN}_models_us", "one_model_us")
    connections = growth(f"{CONNECTIONS[1]}_connections_us", f"{CONNECTIONS[0]}_connections_us")
    return Row(
        "N", f"CPU per request with {IN_TURN} models in turn against 1; at {CONNECTIONS[1]} connections against {CONNECTIONS[0]}",
        f"≤ {MORE}x each", f"{models:.2f}x; {connections:.2f}x", models <= MORE and connections <= MORE, details,
        note="" if models <= MORE else COLD,
    )


def _cpu_a_request(server: Wakeful, calls: Sequence[Call], connections: int, seconds: float) -> float:
    """Microseconds of all the server's processes."""
    closed(server.address, calls, connections=connections, seconds=0.5)
    before = server.tree_cpu()
    results = closed(server.address, calls, connections=connections, seconds=seconds)
    return 1e6 * (server.tree_cpu() - before) / max(results.ok(), 1)
