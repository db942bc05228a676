"""Row K: what is left in memory of models that sleep."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.asleep import Caller, put_to_sleep, wait_prepared
from bench.context import Context
from bench.models import encoder, magika, tiny
from bench.report import Plot, Row
from bench.servers import Wakeful, until, wait_quiet
from wakeful.loadgen.calls import infer_call

LEFT_MB, GROWTH = 5.0, 0.02
FIRST = 30
"""Cycles after which everything that is made once has been made."""


def rows(context: Context) -> Iterator[Row]:
    models = {model.name: model for model in (encoder(), tiny(), magika())}
    calls = {name: infer_call("127.0.0.1", name, model.inputs(), binary=True) for name, model in models.items()}
    cycles = 100 if context.quick else 300
    memory: list[tuple[float | str, float]] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
        Wakeful({name: model.path for name, model in models.items()}, cache=Path(directory)) as server,
    ):
        wait_quiet(server)
        server.call("GET", "/metrics")
        fresh = server.tree_pss()
        with Caller(server.address) as caller:
            for name, call in calls.items():
                caller.ask(call)
                if name == "encoder":
                    wait_prepared(server, name)
            for name in calls:
                put_to_sleep(server, name)
            until(lambda: len(server.pids()) == 2, "everything sleeps")
            asleep = server.tree_pss()
            for cycle in range(1, cycles + 1):
                if cycle % 10 == 0:
                    context.say(f"K: cycle {cycle} of {cycles}")
                caller.ask(calls["encoder"])
                server.call("POST", "/v2/repository/models/encoder/unload", {})
                if cycle % 10 == 0:
                    until(lambda: len(server.pids()) == 2, "it sleeps")
                    memory.append((float(cycle), server.tree_pss() / 1e6))
    after_first = next(megabytes for cycle, megabytes in memory if cycle == FIRST)
    left, growth = (asleep - fresh) / 1e6, memory[-1][1] / after_first - 1
    details: list[Mapping[str, object]] = [{"fresh_mb": fresh / 1e6, "asleep_mb": asleep / 1e6, "left_mb": left}]
    details += [{"cycles": cycle, "asleep_mb": megabytes} for cycle, megabytes in memory]
    yield Row(
        "K", f"memory after everything sleeps, against the fresh daemon; after {cycles} wake/sleep cycles against {FIRST}",
        f"≤ +{LEFT_MB:g} MB; ≤ +{GROWTH:.0%}", f"{left:+.1f} MB; {growth:+.1%}", left <= LEFT_MB and growth <= GROWTH, details,
        plots=(Plot("cycles", "Memory of the sleeping daemon", {"PSS of all its processes": memory}, "wake/sleep cycles", "MB"),),
    )
