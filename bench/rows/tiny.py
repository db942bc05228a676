"""Rows A and B: a model that costs nothing, so that only the server is measured; requests per second and processor time per request.

Each peer is measured in turn with Wakeful: one of ours, one of theirs, round by round, and ratios are taken within a round. The floor is a server
of the same event loop that answers a constant: what there is to gain at all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.context import Context
from bench.floor import Floor
from bench.models import BenchModel, tiny
from bench.peers import PEERS
from bench.raw import RawLimit
from bench.report import Plot, Row
from bench.runs import Rejected, Run, Spread, calls_for, drive, ratios, spread
from bench.servers import Server, ServerFailed, Wakeful

CONNECTIONS = 32
TIMES_TRITON, TIMES_PYTHON = 3.0, 20.0
SHARE_OF_CPU = 0.40
SETTLE_SECONDS = 8.0
"""Load before the first round: replicas are added and taken back meanwhile."""

Pairs = Sequence[tuple[Run, Run]]
"""Ours and theirs, a round each."""


def rows(context: Context) -> Iterator[Row]:
    model = tiny()
    pairs: dict[str, Pairs] = {}
    missing = dict(context.absent)
    with Wakeful({model.name: model.path}) as ours:
        context.say("A: warming up")
        drive(ours, calls_for(ours, model), connections=CONNECTIONS, seconds=1.0, warmup=context.seconds(SETTLE_SECONDS, 4.0), model=model.name)
        pairs["floor"] = _rounds(context, model, ours, Floor)
        for peer in context.peers:
            try:
                pairs[peer] = _rounds(context, model, ours, lambda peer=peer: PEERS[peer]({model.name: model.path}))  # type: ignore[misc]
            except (ServerFailed, Rejected) as error:
                missing[peer] = str(error)
                context.say(f"A: {peer} is left out: {str(error).splitlines()[0]}")
    yield _throughput(context, pairs, missing)
    if context.wants("B"):
        yield _cpu(pairs, missing)


def _rounds(context: Context, model: BenchModel, ours: Server, make: Callable[[], Server]) -> Pairs:
    seconds = context.seconds(4.0, 1.5)
    pairs = []
    with make() as theirs:
        for turn in range(context.rounds):
            context.say(f"A: {ours.name} and {theirs.name}, round {turn + 1} of {context.rounds}")
            mine, other = (
                drive(server, calls_for(server, model), connections=CONNECTIONS, seconds=seconds, turn=turn + 1, model=model.name)
                for server in (ours, theirs)
            )
            pairs.append((mine, other))
    return pairs


def _of(pairs: Pairs, figure: Callable[[Run], float]) -> Spread:
    return ratios(*zip(*((figure(mine), figure(other)) for mine, other in pairs), strict=True))


def _throughput(context: Context, pairs: Mapping[str, Pairs], missing: Mapping[str, str]) -> Row:
    times = {name: _of(of_peer, lambda run: run.per_second) for name, of_peer in pairs.items()}
    python = {name: times[name] for name in times if name != "floor" and PEERS[name].python_all_through}
    mixed = {name: times[name] for name in times if name not in ("floor", "triton", *python)}
    floor = times["floor"].show(".2f", "x")
    said, reached = [], []
    if "triton" in times:
        said.append(f"{times['triton'].show('.1f', 'x')} of Triton")
        reached.append(times["triton"].median >= TIMES_TRITON)
    if python:
        best = min(python, key=lambda name: python[name].median)
        peers = f"{len(python)} Python peer{'s' if len(python) > 1 else ''} measured"
        said.append(f"{python[best].show('.1f', 'x')} of {pairs[best][0][1].server}, the best of {peers}")
        reached.append(python[best].median >= TIMES_PYTHON)
    said += [f"{ratio.show('.1f', 'x')} of {PEERS[name].name}" for name, ratio in mixed.items()]
    said.append(f"{floor} of the floor")
    ours = [mine for of_peer in pairs.values() for mine, _ in of_peer]
    with RawLimit("tiny", 1) as raw:
        lone = raw.lone(1, 0.5)
    rate = spread(run.per_second for run in ours)
    note = [
        (
            f"Here {rate.median:.0f} requests/s. The floor is a constant answered by the same event loop. ONNX Runtime alone would run "
            f"{1 / lone:.0f} single rows/s in one thread: the model costs next to nothing."
        ),
        *_not_measured(missing), *_choices(pairs),
    ]
    if not reached:
        note.append("No peer was asked for, or none could be had: the targets are not judged.")
    near = bool(reached) and ("triton" not in times or times["triton"].median >= 0.9 * TIMES_TRITON) and (
        not python or min(one.median for one in python.values()) >= 0.9 * TIMES_PYTHON
    )
    return Row(
        "A", f"tiny model, JSON, {CONNECTIONS} connections: requests/s",
        f"≥ {TIMES_TRITON:g}x Triton, ≥ {TIMES_PYTHON:g}x the best peer that is Python all through",
        "; ".join(said), all(reached) if reached else None,
        [run.line() for of_peer in pairs.values() for pair in of_peer for run in pair], "\n\n".join(note), _plots(ours, pairs), near,
    )


def _cpu(pairs: Mapping[str, Pairs], missing: Mapping[str, str]) -> Row:
    shares = {name: _of(of_peer, lambda run: run.cpu) for name, of_peer in pairs.items()}
    target = f"≤ {SHARE_OF_CPU:.0%} of Triton's"
    title = "the same: server CPU per request"
    ours = spread(mine.cpu for of_peer in pairs.values() for mine, _ in of_peer)
    lines: list[Mapping[str, object]] = [
        {
            "against": pairs[name][0][1].server, "ours us": round(1e6 * spread(mine.cpu for mine, _ in pairs[name]).median, 1),
            "theirs us": round(1e6 * spread(other.cpu for _, other in pairs[name]).median, 1), "ratio": round(share.median, 3),
            "lowest": round(share.low, 3), "highest": round(share.high, 3),
        }
        for name, share in shares.items()
    ]
    if "triton" not in shares:
        why = "\n\n".join(_not_measured({name: text for name, text in missing.items() if name == "triton"})) or "Triton was not asked for."
        return Row("B", title, target, f"{1e6 * ours.median:.0f} us", None, lines, why)
    share = shares["triton"]
    said = f"{100 * share.median:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f})"
    return Row("B", title, target, said, share.median <= SHARE_OF_CPU, lines, near=share.median <= SHARE_OF_CPU / 0.9)


def _not_measured(missing: Mapping[str, str]) -> list[str]:
    return [f"Not measured: {name}. {reason}" for name, reason in missing.items()]


def _choices(pairs: Mapping[str, Pairs]) -> list[str]:
    """How each peer was configured."""
    return [f"{PEERS[name].name}: {PEERS[name].choice}" for name in pairs if name in PEERS]


def _plots(ours: Sequence[Run], pairs: Mapping[str, Pairs]) -> tuple[Plot, ...]:
    runs: dict[str, Sequence[Run]] = {"Wakeful": ours} | {of_peer[0][1].server: [other for _, other in of_peer] for of_peer in pairs.values()}
    middle = {name: {figure: spread(getattr(run, figure) for run in some).median for figure in ("per_second", "cpu", "p50", "p95", "p99")}
              for name, some in runs.items()}
    return (
        Plot(
            "throughput", f"Tiny model, JSON, {CONNECTIONS} connections", {"": [(name, of["per_second"]) for name, of in middle.items()]},
            y="requests/s", kind="bars", log_y=True,
        ),
        Plot(
            "cpu", "Server CPU per request", {"": [(name, 1e6 * of["cpu"]) for name, of in middle.items()]}, y="µs", kind="bars", log_y=True,
        ),
        Plot(
            "latency", f"Latency at {CONNECTIONS} connections",
            {figure: [(name, 1e3 * of[figure]) for name, of in middle.items()] for figure in ("p50", "p95", "p99")},
            y="ms", kind="bars", log_y=True,
        ),
    )
