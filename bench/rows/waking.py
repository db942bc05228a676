"""Rows H and I: from nothing to an answer, prepared and on the very first load, against creating the stock session alone."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.asleep import Caller, Warm, put_to_sleep, wait_prepared, warm_process
from bench.context import Context
from bench.models import BenchModel, encoder
from bench.report import Row
from bench.runs import middle
from bench.servers import Wakeful, wait_quiet
from wakeful.loadgen.calls import Call, infer_call

SHARE_PREPARED, SHARE_FIRST = 0.30, 1.10


def rows(context: Context) -> Iterator[Row]:
    model = encoder()
    call = infer_call("127.0.0.1", model.name, model.inputs(), binary=True)
    with TemporaryDirectory(prefix="bench-") as directory, warm_process(model) as warm:
        warm.stock()  # the file is in the page cache from here on
        yield _prepared(context, model, call, warm, Path(directory) / "prepared")
        yield _first(context, model, call, warm, Path(directory))


def _prepared(context: Context, model: BenchModel, call: Call, warm: Warm, cache: Path) -> Row:
    details: list[Mapping[str, float]] = []
    with Wakeful({model.name: model.path}, cache=cache) as server, Caller(server.address) as caller:
        caller.ask(call)
        wait_prepared(server, model.name)
        for number in range(max(3 * context.rounds, 7)):
            context.say(f"H: waking {number + 1}")
            put_to_sleep(server, model.name)
            woken = caller.ask(call)
            created, answered, _ = warm.stock()
            details.append(_run(woken, created, answered) | {"awake_ms": 1e3 * min(caller.ask(call) for _ in range(5))})
    return _row("H", "wake from nothing, prepared encoder (90 MB), request to answer over HTTP", SHARE_PREPARED, details)


def _first(context: Context, model: BenchModel, call: Call, warm: Warm, directory: Path) -> Row:
    """Each time another daemon that has never seen the model."""
    details: list[Mapping[str, float]] = []
    for number in range(max(context.rounds, 3)):
        context.say(f"I: first load {number + 1}")
        with Wakeful({model.name: model.path}, cache=directory / f"first-{number}") as server, Caller(server.address) as caller:
            wait_quiet(server)
            woken = caller.ask(call)
        details.append(_run(woken, *warm.stock()[:2]))
    return _row("I", "the same on the very first load", SHARE_FIRST, details)


def _run(woken: float, created: float, answered: float) -> dict[str, float]:
    return {
        "answer_ms": 1e3 * woken, "stock_session_ms": 1e3 * created, "stock_first_run_ms": 1e3 * answered, "ratio": woken / created,
    }


def _row(letter: str, title: str, share: float, details: Sequence[Mapping[str, float]]) -> Row:
    answer, session = middle(details, "answer_ms"), middle(details, "stock_session_ms")
    ratio = answer / session
    measured = f"{ratio:.2f}x ({answer:.0f} ms against {session:.0f} ms)"
    return Row(letter, title, f"≤ {share:g}x of creating the stock session", measured, ratio <= share, details)

