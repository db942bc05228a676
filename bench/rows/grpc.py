"""Row O: a model that costs nothing, over gRPC; processor time per unary call.

Servers are measured in turn, round by round. The empty handler is the raw limit: pygrpc-native with a constant answer.
"""

from collections.abc import Iterator
from contextlib import ExitStack

from bench.context import Context
from bench.grpc_calls import CHANNELS, Calls, drive
from bench.grpc_floor import GrpcFloor
from bench.models import tiny
from bench.peers.triton import Triton
from bench.report import Row
from bench.runs import Spread, spread
from bench.servers import ServerFailed, Wakeful, wait_quiet

CALLS = 32
"""At once, as row A has connections."""
MOST = 120e-6
COUNT, WARMING = 40_000, 10_000
"""Calls of a round, and before the first."""


def rows(context: Context) -> Iterator[Row]:
    model = tiny()
    missing = context.absent.get("triton", "It was not asked for.")
    with ExitStack() as stack:
        servers = [stack.enter_context(Wakeful({model.name: model.path}, grpc=True)), stack.enter_context(GrpcFloor())]
        if "triton" in context.peers:
            try:
                servers.append(stack.enter_context(Triton({model.name: model.path}, grpc=True)))
            except ServerFailed as error:
                missing = str(error)
        runs: dict[str, list[Calls]] = {server.name: [] for server in servers}
        for server in servers:
            context.say(f"O: warming up {server.name}")
            drive(server, server.grpc_port, model.name, calls=CALLS, count=WARMING)
            wait_quiet(server)
        for turn in range(context.rounds):
            for server in servers:
                context.say(f"O: {server.name}, round {turn + 1} of {context.rounds}")
                runs[server.name].append(drive(server, server.grpc_port, model.name, calls=CALLS, count=COUNT))
    yield _row(runs, "" if Triton.name in runs else f"Triton is not measured. {missing}")


def _row(runs: dict[str, list[Calls]], note: str) -> Row:
    ours, floor = _cpu(runs[Wakeful.name]), _cpu(runs[GrpcFloor.name])
    said, most = f"{ours.show('.0f')} us; empty handler {floor.show('.0f')} us", 1e6 * MOST
    if Triton.name in runs:
        said += f"; Triton {_cpu(runs[Triton.name]).show('.0f')} us"
        most = min(most, _cpu(runs[Triton.name]).median)
    lines = [
        {
            "server": name, "round": turn, "calls/s": round(one.per_second, 1), "p50 ms": round(1e3 * one.p50, 3), "p99 ms": round(1e3 * one.p99, 3),
            "server CPU us/call": round(1e6 * one.cpu, 1),
        }
        for name, some in runs.items() for turn, one in enumerate(some, 1)
    ]
    return Row(
        "O", f"tiny model over gRPC, {CALLS} calls at once over {CHANNELS} connections: server CPU per unary call",
        f"≤ {1e6 * MOST:.0f} us, ≤ Triton's", said, ours.median <= most, lines, note, near=ours.median <= most / 0.9,
    )


def _cpu(runs: list[Calls]) -> Spread:
    return spread(1e6 * one.cpu for one in runs)
