"""`wakeful bench`: load for a server of the Open Inference Protocol, and what came of it."""

import json
import math
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wakeful.cli.bench_options import Load, WrongUse, add_arguments, load_of, place_of
from wakeful.cli.descriptors import allow_descriptors
from wakeful.cli.parser import DONE, NO, WRONG_USE, complain
from wakeful.errors import InvalidInput, Unavailable, WakefulError
from wakeful.loadgen import inputs
from wakeful.loadgen.calls import Call, infer_call, infer_path, post
from wakeful.loadgen.driver import Progress, closed, open_loop
from wakeful.loadgen.results import Results
from wakeful.loadgen.summary import as_dict, failures
from wakeful.loadgen.target import Target, inputs_of, parse_url

__all__ = ["add_arguments", "run"]

VARIANTS = 8
"""Different inputs for each model and number of rows, so that nobody can answer from memory."""
LARGE = 1 << 20
"""Bytes from which on one variant is enough."""
ORDER = 10_007
"""Calls after which a random order begins anew."""
FIRST_PATIENCE = 120.0
"""Seconds for the first answer: a model may have to be loaded."""
HINT = "hint"


class Mix(NamedTuple):
    """The calls, and how often each is made."""

    calls: list[Call]
    weights: list[float]
    notes: list[str]

    def order(self, seed: int) -> list[int] | None:
        """Random; None where there is nothing to choose from."""
        if len(self.calls) == 1:
            return None
        share = np.array(self.weights) / sum(self.weights)
        return list(map(int, np.random.default_rng(seed).choice(len(self.calls), ORDER, p=share)))


def run(arguments: Namespace) -> int:
    try:
        arguments.url, arguments.models = place_of(arguments)
    except WrongUse as error:
        complain(error.message, *error.notes)
        return WRONG_USE
    try:
        load = load_of(arguments)
        picture = _painter(arguments.plot)
        target = parse_url(arguments.url)
        mix = _mix(target, arguments)
        allow_descriptors()
        if not arguments.cold:
            _try_first(target, mix)
    except (WrongUse, WakefulError, OSError) as error:
        told = error if isinstance(error, WrongUse) else _told(error, arguments.url)
        complain(told.message, *told.notes)
        return WRONG_USE
    return _measure(target, mix, load, arguments, picture)


def _measure(target: Target, mix: Mix, load: Load, arguments: Namespace, picture: "Painter | None") -> int:
    from wakeful.cli import bench_page  # noqa: PLC0415 - rich is not needed to say that a server is not there

    for note in mix.notes:
        print(f"note: {note}", file=sys.stderr)
    title = f"{', '.join(dict.fromkeys(call.label for call in mix.calls))} at {target.url}: {load.text}"
    with bench_page.bar(load.text) as progress:
        try:
            results = _drive(target, mix, load, arguments, progress)
        except OSError as error:
            complain(f"{load.text}: {(error.strerror or str(error)).lower()}", (HINT, "fewer --connections, or a higher limit: ulimit -n"))
            return WRONG_USE
    kept = [(bound, bound.value(results)) for bound in arguments.bounds]
    if arguments.json != "-":
        bench_page.show(results, mix.calls, title)
        print(*(bound.told(value) for bound, value in kept), sep="\n", end="\n" if kept else "")
    try:
        _save(results, mix, arguments, title, target)
        if picture is not None:
            picture(results, title, arguments.plot)
    except OSError as error:
        complain(f"cannot write {error.filename}: {error.strerror}")
        return NO
    return DONE if results.ok() and all(bound.holds(value) for bound, value in kept) else NO


def _drive(target: Target, mix: Mix, load: Load, arguments: Namespace, progress: Progress | None) -> Results:
    order, timeout = mix.order(arguments.seed), arguments.timeout
    if load.arrivals is None:
        return closed(
            target.address, mix.calls, connections=load.connections, seconds=load.seconds, warmup=load.warmup, order=order, timeout=timeout,
            progress=progress,
        )
    results = open_loop(
        target.address, mix.calls, load.arrivals, connections=load.connections, order=order, timeout=timeout, progress=progress,
    )
    return results.warmed(load.warmup) if load.warmup else results


def _save(results: Results, mix: Mix, arguments: Namespace, title: str, target: Target) -> None:
    if arguments.json is None:
        return
    figures = as_dict(results, mix.calls) | _asserts(results, arguments)
    text = json.dumps({"title": title, "url": target.url, "command": sys.argv[1:]} | figures, indent=2)
    if arguments.json == "-":
        print(text)
    else:
        Path(arguments.json).write_text(text + "\n", encoding="utf-8")


def _asserts(results: Results, arguments: Namespace) -> dict[str, Any]:
    kept = [(bound, bound.value(results)) for bound in arguments.bounds]
    shown = [{"assert": bound.text, "value": None if math.isnan(value) else value, "holds": bound.holds(value)} for bound, value in kept]
    return {"asserts": shown} if shown else {}


# ── the calls ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _mix(target: Target, arguments: Namespace) -> Mix:
    mix = Mix([], [], [])
    for model, weight in arguments.models:
        calls, notes = _own_body(target, model, arguments.request) if arguments.request else _made_up(target, model, arguments)
        mix.calls.extend(calls)
        mix.weights.extend([weight / len(calls)] * len(calls))
        mix.notes.extend(notes)
    return mix


def _own_body(target: Target, model: str, path: Path) -> tuple[list[Call], list[str]]:
    body = path.read_bytes()
    try:
        rows = int(json.loads(body)["inputs"][0]["shape"][0])
    except (ValueError, LookupError, TypeError):
        rows = 1
    return [Call(post(target.authority, target.prefix + infer_path(model), body), rows, model)], []


def _made_up(target: Target, model: str, arguments: Namespace) -> tuple[list[Call], list[str]]:
    specs = inputs_of(target, model)
    wishes = inputs.Wishes(dict(arguments.dims), dict(arguments.shapes), arguments.int_range)
    try:
        plan = inputs.plan(model, specs, wishes)
    except InvalidInput as error:
        raise WrongUse(str(error), (HINT, "--shape INPUT=1,16 gives a whole shape, --request FILE a whole body")) from None
    if lost := inputs.unused(wishes.dims, specs):
        free = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in specs)
        raise WrongUse(f"--dim {lost[0]}: {model} has no free dimension of this number or name", ("inputs", free))
    rows = arguments.rows or (1,)
    if arguments.rows and not plan.free_rows:
        first, shape = plan.inputs[0]
        raise WrongUse(f"--rows: axis 0 of {model} is not free, input {first.name} is {list(shape)}", (HINT, "leave --rows out"))
    random = np.random.default_rng(arguments.seed)
    calls: list[Call] = []
    for count in rows:
        for _ in range(VARIANTS):
            made = inputs.make(plan, count, arguments.int_range, random)
            path = target.prefix + infer_path(model)
            calls.append(infer_call(target.authority, model, made, binary=arguments.binary, path=path))
            if len(calls[-1].data) > LARGE:
                break
    notes = [f"{model}: free dimensions taken as 1: {', '.join(plan.assumed)} (another size: --dim AXIS=N)"] if plan.assumed else []
    return _evenly(calls), notes


def _evenly(calls: list[Call]) -> list[Call]:
    """As many variants for each number of rows, so that all weigh the same."""
    variants = {count: [call for call in calls if call.rows == count] for count in dict.fromkeys(call.rows for call in calls)}
    fewest = min(map(len, variants.values()))
    return [call for some in variants.values() for call in some[:fewest]]


def _try_first(target: Target, mix: Mix) -> None:
    """One call of each kind: a load that fails every time is not worth measuring, and a sleeping model is awake for what follows."""
    kinds = {(call.label, call.rows): call for call in reversed(mix.calls)}
    for call in reversed(kinds.values()):
        tried = closed(target.address, [call], connections=1, seconds=FIRST_PATIENCE, most=1, timeout=FIRST_PATIENCE)
        if tried.interrupted:
            raise KeyboardInterrupt
        if tried.ok():
            continue
        first = failures(tried)[0]
        raise WrongUse(
            f"{call.label} does not answer such a request: {f'HTTP {first.status}, ' if first.status else ''}{first.text}",
            (HINT, "other inputs: --shape, --dim, --int-range, --request FILE; or --cold to measure it nevertheless"),
        )


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _told(error: Exception, url: str) -> WrongUse:
    """Why there is nothing to measure, for whoever typed the command."""
    if isinstance(error, OSError):
        return WrongUse(f"cannot read {error.filename}: {error.strerror}" if error.filename else str(error))
    if isinstance(error, Unavailable):
        return WrongUse(str(error), (HINT, f"does a server run there? to start one: wakeful serve --demo; then wakeful bench {url} demo-model"))
    return WrongUse(str(error))


Painter = Callable[[Results, str, Path], None]


def _painter(path: Path | None) -> Painter | None:
    """What draws, looked for before the load and not after it."""
    if path is None:
        return None
    if path.suffix not in (".png", ".svg"):
        raise WrongUse(f"--plot {path}: pictures are written as .svg or .png", (HINT, f"--plot {path.with_suffix('.svg')}"))
    if path.suffix == ".svg":
        from wakeful.loadgen import svg  # noqa: PLC0415 - only for this

        return svg.plot
    try:
        from wakeful.loadgen.plot import plot  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        hint = "pip install 'wakeful[bench]', or --plot FILE.svg"
        raise WrongUse("--plot FILE.png needs matplotlib, which is not installed", (HINT, hint)) from None
    return plot
