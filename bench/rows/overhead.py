"""Rows C and E: what the server adds to the bare run, for one client who is alone; and how many bytes it moves."""

from collections.abc import Iterator, Mapping

from bench.context import Context
from bench.floor import Floor
from bench.models import IDENTITY_WIDTH, BenchModel, identity, tiny
from bench.peers import PEERS
from bench.raw import RawLimit
from bench.report import Plot, Row
from bench.runs import Rejected, Run, Spread, calls_for, drive, spread
from bench.servers import Server, ServerFailed, Wakeful

ADDED_TINY, ADDED_LARGE = 0.35e-3, 1.0e-3
GIGABYTES = 1.0
SEVERAL = (2, 4, 8)
"""Connections for the throughput of the identity model."""
TRITON = PEERS["triton"].name
SAME = 1.05
"""Two medians of the same thing differ by so much here."""


def rows(context: Context) -> Iterator[Row]:
    if context.wants("C"):
        yield _lone_client(context)
    if context.wants("E"):
        yield _large_tensors(context)


class _Alone:
    """One connection, one row: latency less that of the bare run of the same round."""

    def __init__(self, context: Context, model: BenchModel, raw: RawLimit, *, binary: bool) -> None:
        self._context, self._model, self._raw, self._binary = context, model, raw, binary
        self.lines: list[Mapping[str, object]] = []
        self.added: dict[str, list[float]] = {}
        self.runs: dict[str, list[Run]] = {}
        self.bare: list[float] = []

    def measure(self, server: Server, turn: int) -> None:
        seconds = self._context.seconds(3.0, 1.0)
        bare = self._raw.lone(1, seconds / 3)
        run = drive(server, calls_for(server, self._model, binary=self._binary), connections=1, seconds=seconds, turn=turn, model=self._model.name)
        self.bare.append(bare)
        self.runs.setdefault(server.name, []).append(run)
        self.added.setdefault(server.name, []).append(run.p50 - bare)
        self.lines.append(run.line() | {"bare run ms": round(1e3 * bare, 4), "added p50 ms": round(1e3 * (run.p50 - bare), 3)})

    def rounds(self, *servers: Server) -> None:
        for turn in range(1, self._context.rounds + 1):
            for server in servers:
                self._context.say(f"one client, {self._model.name}: {server.name}, round {turn} of {self._context.rounds}")
                self.measure(server, turn)

    def spread(self, name: str) -> Spread:
        return spread(1e3 * seconds for seconds in self.added[name])


def _with_triton(context: Context, model: BenchModel, alone: _Alone, ours: Server) -> str:
    """Measure ours, and Triton beside it if it is wanted and can be had. What to say about it if not."""
    if "triton" not in context.peers:
        alone.rounds(ours)
        return f"Triton is not measured. {context.absent.get('triton', 'It was not asked for.')}"
    try:
        with PEERS["triton"]({model.name: model.path}) as triton:
            alone.rounds(ours, triton)
    except (ServerFailed, Rejected) as error:
        if not alone.runs:
            alone.rounds(ours)
        return f"Triton is not measured. {error}"
    return ""


def _lone_client(context: Context) -> Row:
    model = tiny()
    with RawLimit(model.name, 1) as raw, Wakeful({model.name: model.path}) as ours:
        alone = _Alone(context, model, raw, binary=False)
        missing = _with_triton(context, model, alone, ours)
    added = alone.spread(ours.name)
    said, reached = f"{added.show('.3f')} ms", 1e-3 * added.median <= ADDED_TINY
    if TRITON in alone.added:
        said += f"; Triton {alone.spread(TRITON).show('.3f')} ms"
        reached = reached and added.median <= SAME * alone.spread(TRITON).median
    bars = {
        figure: [(name, spread(1e3 * getattr(run, figure) for run in runs).median) for name, runs in alone.runs.items()]
        for figure in ("p50", "p95", "p99")
    }
    return Row(
        "C", "one client, one row, default settings: time added to the bare run, p50", f"≤ {1e3 * ADDED_TINY:g} ms, ≤ Triton's", said, reached,
        alone.lines, f"The bare run takes {1e3 * spread(alone.bare).median:.3f} ms. {missing}".strip(),
        (Plot("latency", "One client, tiny model, JSON", bars, y="ms", kind="bars"),), near=1e-3 * added.median <= ADDED_TINY / 0.9,
    )


def _large_tensors(context: Context) -> Row:
    model = identity()
    both_ways = 2 * 4 * IDENTITY_WIDTH
    rates: dict[str, dict[int, list[float]]] = {}
    with RawLimit(model.name, 1) as raw, Wakeful({model.name: model.path}) as ours, Floor(both_ways // 2) as floor:
        alone = _Alone(context, model, raw, binary=True)
        missing = _with_triton(context, model, alone, ours)
        lines = list(alone.lines)
        sockets = [
            drive(floor, calls_for(floor, model, binary=True), connections=1, seconds=1.0, turn=turn).p50 for turn in range(context.rounds)
        ]
        for turn in range(1, context.rounds + 1):
            for connections in SEVERAL:
                context.say(f"E: {connections} connections, round {turn} of {context.rounds}")
                run = drive(
                    ours, calls_for(ours, model, binary=True), connections=connections, seconds=context.seconds(3.0, 1.0), turn=turn,
                    model=model.name,
                )
                rates.setdefault(ours.name, {}).setdefault(connections, []).append(gigabytes := run.per_second * both_ways / 1e9)
                lines.append(run.line() | {"GB/s in and out": round(gigabytes, 2)})
    added = alone.spread(ours.name)
    moved = {connections: spread(values) for connections, values in rates[ours.name].items()}
    best = max(moved, key=lambda connections: moved[connections].median)
    said = f"{added.show('.2f')} ms; {moved[best].show('.2f')} GB/s at {best} connections"
    if TRITON in alone.added:
        said += f" (Triton: {alone.spread(TRITON).show('.2f')} ms)"
    lines_of = {"Wakeful": [(float(connections), one.median) for connections, one in moved.items()]}
    return Row(
        "E", "600 KB FP32 input as binary: time added to the bare run; throughput of an identity model",
        f"≤ {1e3 * ADDED_LARGE:g} ms; ≥ {GIGABYTES:g} GB/s in and out together", said,
        1e-3 * added.median <= ADDED_LARGE and moved[best].median >= GIGABYTES, lines,
        (
            f"The bare run takes {1e3 * spread(alone.bare).median:.3f} ms. Sending as many bytes there and back to a server that does nothing with "
            f"them takes {1e3 * spread(sockets).median:.2f} ms. {missing}"
        ).strip(),
        (Plot("throughput", "Identity model, 600 KB a row, binary", lines_of, x="connections", y="GB/s in and out"),),
        near=1e-3 * added.median <= ADDED_LARGE / 0.9 and moved[best].median >= 0.9 * GIGABYTES,
    )
