"""`wakeful bench`: load for a server of the Open Inference Protocol, and what came of it."""

import math
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from wakeful.cli import bench_page, bench_sweep
from wakeful.cli.bench_asserts import Bound
from wakeful.cli.bench_calls import HINT, Mix, mix_of, try_first
from wakeful.cli.bench_options import Load, Sweep, WrongUse, add_arguments, load_of, place_of
from wakeful.cli.bench_own import Asked
from wakeful.cli.bench_progress import Progress
from wakeful.cli.client import Failure, key_of
from wakeful.cli.descriptors import allow_descriptors
from wakeful.cli.looks import Looks
from wakeful.cli.output import FORMAT, Output, json_text
from wakeful.cli.parser import DONE, NO, complain
from wakeful.cli.status import NO_MODEL, NOT_REACHABLE
from wakeful.errors import NotFound, Unavailable, WakefulError
from wakeful.loadgen import sweep
from wakeful.loadgen.driver import closed, open_loop
from wakeful.loadgen.results import Results
from wakeful.loadgen.summary import NOTHING, Facts, as_dict, facts
from wakeful.loadgen.sweep import Step
from wakeful.loadgen.target import Target, parse_url

__all__ = ["add_arguments", "run"]


def run(arguments: Namespace) -> int:
    output = Output(json=arguments.json == "-", choice=arguments.color, quiet=arguments.quiet)
    try:
        return _run(arguments, output)
    except BrokenPipeError:
        raise
    except (WrongUse, Failure, WakefulError, OSError) as error:
        told = _told(error, arguments.url)
        if output.json:
            hint = next((text for label, text in told.notes if label == HINT), None)
            output.fail(Failure(told.code, told.message, told.status, hint))
        else:
            complain(told.message, *told.notes)
        return told.status


class Measured(NamedTuple):
    """What came of a load."""

    raw: Results | list[Step]
    facts: Facts
    """What bounds are held against: of a sweep, those at the knee."""
    data: dict[str, Any]
    lines: Callable[[Looks], list[str]]
    good: bool
    """Was anything answered?"""


def _run(arguments: Namespace, output: Output) -> int:
    arguments.url, models = place_of(arguments)
    load = load_of(arguments)
    picture = _painter(arguments.plot, rates=arguments.sweep)
    target = parse_url(arguments.url)._replace(key=key_of(arguments.key_file))
    mix = mix_of(target, models, arguments)
    allow_descriptors()
    if not arguments.cold:
        try_first(target, mix)
    if not output.quiet:
        for note in mix.notes:
            print(f"note: {note}", file=sys.stderr)
    title = f"{', '.join(mix.labels)} at {target.url}: {load.text}"
    try:
        found = (_swept if isinstance(load, Sweep) else _loaded)(target, mix, load, arguments, output, title)  # type: ignore[arg-type]
    except OSError as error:
        hint = (HINT, "fewer --connections, or a higher limit: ulimit -n")
        raise WrongUse(f"{load.text}: {(error.strerror or str(error)).lower()}", hint) from None
    kept = [(bound, bound.value(found.facts)) for bound in arguments.bounds]
    data = {"title": title, "url": target.url, "command": sys.argv[1:]} | found.data | _asserts(kept)
    output.result("bench", data, lambda looks: [*found.lines(looks), *bench_page.asserts(kept, looks)])
    try:
        _save(data, arguments)
        if picture is not None:
            picture(found.raw, title, arguments.plot)
            output.note(f"written {arguments.plot}")
    except OSError as error:
        complain(f"cannot write {error.filename}: {error.strerror}")
        return NO
    return DONE if found.good and all(bound.holds(value) for bound, value in kept) else NO


def _loaded(target: Target, mix: Mix, load: Load, arguments: Namespace, output: Output, title: str) -> Measured:
    progress = Progress(load.text, sys.stderr, output.asides, quiet=output.quiet)
    order, timeout = mix.order(arguments.seed), arguments.timeout
    try:
        if load.arrivals is None:
            results = closed(
                target.address, mix.calls, connections=load.connections, seconds=load.seconds, warmup=load.warmup, order=order, timeout=timeout,
                progress=progress.seen,
            )
        else:
            results = open_loop(
                target.address, mix.calls, load.arrivals, connections=load.connections, order=order, timeout=timeout, progress=progress.seen,
            )
            results = results.warmed(load.warmup) if load.warmup else results
    finally:
        progress.done()
    lines = partial(bench_page.page, results, mix.calls, title)
    return Measured(results, facts(results, mix.calls), as_dict(results, mix.calls), lines, bool(results.ok()))


def _swept(target: Target, mix: Mix, plan: Sweep, arguments: Namespace, output: Output, title: str) -> Measured:
    driver = bench_sweep.Driver(target, mix, plan, arguments.seed, arguments.timeout)
    steps = driver.run(output, Asked(target, mix.labels))
    best = sweep.knee(steps)
    about = bench_sweep.about(target, mix)
    lines = partial(bench_sweep.page, steps, title, about)
    return Measured(steps, NOTHING if best is None else best.facts, {"about": about} | bench_sweep.as_dict(steps), lines, best is not None)


def _asserts(kept: Sequence[tuple[Bound, float]]) -> dict[str, Any]:
    """For JSON; null where nothing was answered."""
    shown = [{"assert": bound.text, "value": None if math.isnan(value) else value, "holds": bound.holds(value)} for bound, value in kept]
    return {"asserts": shown} if shown else {}


def _save(data: dict[str, Any], arguments: Namespace) -> None:
    if arguments.json not in (None, "-"):
        Path(arguments.json).write_text(json_text({"wakeful": FORMAT, "kind": "bench", "data": data}) + "\n", encoding="utf-8")


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _told(error: Exception, url: str | None) -> WrongUse:
    """Why there is nothing to measure, for whoever typed the command."""
    match error:
        case WrongUse():
            return error
        case Failure():
            return WrongUse(str(error), *([(HINT, error.hint)] if error.hint else []), status=error.exit, code=error.code)
        case OSError():
            return WrongUse(f"cannot read {error.filename}: {error.strerror}" if error.filename else str(error))
        case Unavailable():
            hint = f"does a server run there? to start one: wakeful serve --demo; then wakeful bench {url} demo-model"
            return WrongUse(str(error), (HINT, hint), status=NOT_REACHABLE, code="unreachable")
        case NotFound():
            return WrongUse(str(error), status=NO_MODEL, code="not_found")
        case _:
            return WrongUse(str(error))


Painter = Callable[[Any, str, Path], None]


def _painter(path: Path | None, *, rates: bool) -> Painter | None:
    """What draws, looked for before the load and not after it."""
    if path is None:
        return None
    if path.suffix not in (".svg", ".html", ".png"):
        raise WrongUse(f"--plot {path}: pictures are written as .svg, .html or .png", (HINT, f"--plot {path.with_suffix('.svg')}"))
    if path.suffix != ".png":
        from wakeful.loadgen import pictures  # noqa: PLC0415 - only for this

        return pictures.sweep if rates else pictures.run
    try:
        from wakeful.loadgen import plot  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        hint = "pip install 'wakeful[bench]', or --plot FILE.svg"
        raise WrongUse("--plot FILE.png needs matplotlib, which is not installed", (HINT, hint)) from None
    return plot.sweep if rates else plot.run
