"""The calls that `wakeful bench` makes: bodies made up from what the server says of a model, or one's own; and a first try of each."""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wakeful.cli.bench_options import WrongUse
from wakeful.errors import InvalidInput
from wakeful.loadgen import inputs
from wakeful.loadgen.calls import JSON, Call, infer_call, infer_path, post
from wakeful.loadgen.driver import closed
from wakeful.loadgen.summary import failures
from wakeful.loadgen.target import Target, inputs_of

VARIANTS = 8
"""Different inputs for each model and number of rows, so that nobody can answer from memory."""
LARGE = 1 << 20
"""Bytes from which on one variant is enough."""
ORDER = 10_007
"""Calls after which a random order begins anew."""
FIRST_PATIENCE = 120.0
"""Seconds for the first answer: a model may have to be loaded."""
MOST_DESCRIBED = 4
"""Inputs that a title names."""
HINT = "hint"


class Mix(NamedTuple):
    """The calls, and how often each is made."""

    calls: list[Call]
    weights: list[float]
    notes: list[str]
    inputs: list[str]
    """In words, where they are made up: "x FP32 [1,4] random"."""

    def order(self, seed: int) -> list[int] | None:
        """Random; None where there is nothing to choose from."""
        if len(self.calls) == 1:
            return None
        share = np.array(self.weights) / sum(self.weights)
        return list(map(int, np.random.default_rng(seed).choice(len(self.calls), ORDER, p=share)))

    @property
    def labels(self) -> list[str]:
        """Names of the models."""
        return list(dict.fromkeys(call.label for call in self.calls))


def mix_of(target: Target, models: Sequence[tuple[str, float]], arguments: Namespace) -> Mix:
    """Raises WrongUse, a WakefulError, or OSError for the body's file."""
    mix = Mix([], [], [], [])
    for model, weight in models:
        made = _own_body(target, model, arguments.request) if arguments.request else _made_up(target, model, arguments)
        mix.calls.extend(made.calls)
        mix.weights.extend([weight / len(made.calls)] * len(made.calls))
        mix.notes.extend(made.notes)
        mix.inputs.extend(made.inputs)
    return mix


def _own_body(target: Target, model: str, path: Path) -> Mix:
    body = path.read_bytes()
    try:
        rows = int(json.loads(body)["inputs"][0]["shape"][0])
    except (ValueError, LookupError, TypeError):
        rows = 1
    data = post(target.authority, target.prefix + infer_path(model), body, JSON, *target.headers)
    return Mix([Call(data, rows, model)], [], [], [f"the body of {path.name}"])


def _made_up(target: Target, model: str, arguments: Namespace) -> Mix:
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
            calls.append(infer_call(target.authority, model, made, binary=arguments.binary, path=path, headers=target.headers))
            if len(calls[-1].data) > LARGE:
                break
    notes = [f"{model}: free dimensions taken as 1: {', '.join(plan.assumed)} (another size: --dim AXIS=N)"] if plan.assumed else []
    return Mix(_evenly(calls), [], notes, [_in_words(plan, rows)])


def _in_words(plan: inputs.Plan, rows: Sequence[int]) -> str:
    """ "x FP32 [1,4] random"; several numbers of rows as [1|4,4]."""
    head = "|".join(map(str, rows))
    shown = []
    for spec, shape in plan.inputs[:MOST_DESCRIBED]:
        sizes = ",".join(head if size is None else str(size) for size in shape)
        shown.append(f"{spec.name} {spec.datatype} [{sizes}]")
    more = len(plan.inputs) - MOST_DESCRIBED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "") + " random"


def _evenly(calls: list[Call]) -> list[Call]:
    """As many variants for each number of rows, so that all weigh the same."""
    variants = {count: [call for call in calls if call.rows == count] for count in dict.fromkeys(call.rows for call in calls)}
    fewest = min(map(len, variants.values()))
    return [call for some in variants.values() for call in some[:fewest]]


def try_first(target: Target, mix: Mix) -> None:
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
