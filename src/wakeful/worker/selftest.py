"""The golden rule: the answer in a batch equals the answer alone. May this model's requests be merged along axis 0?

First by what the model declares, then by trying: rows alone and the same rows in company must give the same answers.
"""

import re
import time
from collections.abc import Sequence

import numpy as np
from numpy.random import default_rng

from wakeful.backends import trial
from wakeful.backends.base import Backend
from wakeful.backends.trial import FAINT, LARGE, MIDDLE, OTHER_SHAPES, OTHER_SIZES, PLAIN, SAME_SHAPES, SIGNED, ZEROS, Arrays, Recipe, Style
from wakeful.errors import OutOfMemory, WakefulError
from wakeful.runtime.messages import Signature, TensorSpec, Verdict

PARTS = (1, 1, 2)
"""Rows of the requests that are merged."""

# One style for each part. Unlike neighbours are what brings shared statistics to light: beside large values, an 8-bit range that the batch
# shares rounds small ones to nothing.
TRIALS: tuple[tuple[Style, ...], ...] = (
    (PLAIN, PLAIN, PLAIN),
    (SIGNED, LARGE, FAINT),
    (ZEROS, LARGE, SIGNED),
    (MIDDLE, MIDDLE, MIDDLE),
    (FAINT, ZEROS, PLAIN),
    (LARGE, SIGNED, MIDDLE),
)
ENOUGH = 3
"""Trials that are made however long they take."""
PATIENCE = 2.0
"""Seconds after which no further trial begins: the model could serve meanwhile."""
ROUNDS = 3
"""How often each trial is made, with other numbers, of a model so quick that it costs next to nothing."""
NEXT_TO_NOTHING = 0.05
"""Seconds after which no further round goes on."""

WIDEST = 64
"""Rows of the largest run that is tried, where the model is quick. A limit of its own (a table of so many places) shows there."""
WIDE_SECONDS = 0.05
"""Longest time that this run is to take; twice the rows of the parts and of their company are tried however long it takes."""

GENERATED = re.compile(r"unk__\d+|.*_dim_\d+|.*_dynamic_axes_\d+")
"""Names that exporters (tf2onnx, shape inference, torch) make up for a dimension that has none: they say nothing about which are equal."""

CAUSES = "dynamic quantisation does this, or a statistic over the batch"
ADVICE = 'if its rows are independent all the same, set batching = "on"'


def declared(signature: Signature) -> Verdict:
    """What the declaration alone says: all inputs and outputs that are always there need the same free axis 0, and nothing else may depend on it."""
    tensors = [("input", spec) for spec in trial.required(signature)] + [("output", spec) for spec in signature.outputs]
    if signature.undeclared:
        return _no(f"it declares no signature; {ADVICE}", tested=False)
    if not trial.required(signature):
        return _no("it has no inputs", tested=False)
    first: tuple[str, TensorSpec] | None = None
    for kind, spec in tensors:
        if not spec.shape:
            return _no(f"{kind} {spec.name} has no declared axis 0", tested=False)
        size = _named(spec.shape[0])
        if isinstance(size, int):
            fault = f"has axis 0 fixed to {size}" if kind == "input" else f"has no free axis 0 ({_shown(spec)})"
            return _no(f"{kind} {spec.name} {fault}", tested=False)
        if size is None:
            continue
        if first is None:
            first = kind, spec
        elif size != first[1].shape[0]:
            return _no(f"axis 0 of {kind} {spec.name} is {size}, of {first[0]} {first[1].name} it is {first[1].shape[0]}", tested=False)
    symbol = None if first is None else first[1].shape[0]
    for kind, spec in tensors:
        if symbol is not None and symbol in spec.shape[1:]:
            return _no(f"{kind} {spec.name} depends on the batch size in a further axis ({_shown(spec)})", tested=False)
    return Verdict(True, "all inputs and outputs declare the same free axis 0", tested=False)


def probe(backend: Backend) -> Verdict:
    """What running the model says: made-up requests alone, merged, and merged with others.

    Raises OutOfMemory: then nothing has been found out.
    """
    verdict = declared(backend.signature)
    if not verdict.mergeable:
        return verdict
    recipe, refusal = trial.find_recipe(backend)
    if recipe is None:
        return _no(f"the self-test found no input that the model takes (it said: {refusal}); {ADVICE}")
    began, made = time.monotonic(), 0
    strangers: list[Arrays] = []
    for seed, styles in enumerate(TRIALS * ROUNDS):
        if made >= ENOUGH and time.monotonic() - began > (PATIENCE if seed < len(TRIALS) else NEXT_TO_NOTHING):
            break
        parts = _parts(backend.signature, recipe, styles, seed)
        try:
            alone = [trial.run(backend, part) for part in parts]
        except OutOfMemory:
            raise
        except WakefulError:
            continue  # values that the model refuses even alone say nothing about merging
        try:
            fault = _alone_and_merged(backend, parts, alone)
            if strangers and not fault:
                fault = _other_company(backend, parts, strangers)
        except OutOfMemory:
            raise
        except WakefulError as error:
            fault = f"a merged run fails ({error.message})"
        if fault:
            return _no(f"{fault}; {ADVICE}")
        strangers, made = parts, made + 1
    if made < ENOUGH:
        return _no(f"the self-test found too few inputs that the model takes; {ADVICE}")
    return Verdict(True, f"rows do not influence each other ({min(made, len(TRIALS))} trials)", tested=True)


def lone_seconds(backend: Backend, runs: int = 3) -> float:
    """The shortest of a few runs of one made-up row; 0 when no input was found that the model takes."""
    try:
        recipe, _ = trial.find_recipe(backend)
        if recipe is None:
            return 0.0
        row = trial.sample(backend.signature, recipe, PLAIN, 1, default_rng(0))
        best = float("inf")
        for _ in range(runs):
            inputs = {name: array.copy() for name, array in row.items()}  # into which the model may write
            began = time.perf_counter()
            backend.run(inputs)
            best = min(best, time.perf_counter() - began)
    except WakefulError:
        return 0.0
    return best


def _parts(signature: Signature, recipe: Recipe, styles: Sequence[Style], seed: int) -> list[Arrays]:
    random = default_rng(seed)
    return [trial.sample(signature, recipe, style, rows, random) for style, rows in zip(styles, PARTS, strict=True)]


def _merged(parts: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _alone_and_merged(backend: Backend, parts: Sequence[Arrays], alone: Sequence[Sequence[np.ndarray]]) -> str:
    """What is wrong with the merged answer; empty if each part got what it gets alone."""
    merged = trial.run(backend, _merged(parts))
    for index, spec in enumerate(backend.signature.outputs):
        for rows, answers in [*zip(PARTS, alone, strict=True), (sum(PARTS), merged)]:
            shape = answers[index].shape
            if not shape or shape[0] != rows:
                return f"output {spec.name} has shape {list(shape)} for {rows} row{'s' * (rows > 1)}"
        start = 0
        for part, rows, answers in zip(parts, PARTS, alone, strict=True):
            if not trial.agree(spec, merged[index][start : start + rows], answers[index], OTHER_SHAPES):
                if not trial.agree(spec, trial.run(backend, part)[index], answers[index], SAME_SHAPES):
                    return f"output {spec.name} differs from run to run even alone"
                return f"output {spec.name} is not the same in company as alone ({CAUSES})"
            start += rows
    return ""


def _other_company(backend: Backend, parts: Sequence[Arrays], strangers: Sequence[Arrays]) -> str:
    """What is wrong when each part sits beside others than before; empty if it does not notice.

    This is the sharp test: in the same place of a run of the same size, the answers of independent rows are equal to the last bit, so that small
    influences show.
    """
    seconds, answers = [], []
    for members in (parts, [parts[0], *strangers[1:]], [strangers[0], *parts[1:]]):
        began = time.monotonic()
        answers.append(trial.run(backend, _merged(members)))
        seconds.append(time.monotonic() - began)
    before, first, rest = answers
    cut = PARTS[0]
    for index, spec in enumerate(backend.signature.outputs):
        after = np.concatenate([first[index][:cut], rest[index][cut:]])
        if not trial.agree(spec, after, before[index], SAME_SHAPES):
            return f"output {spec.name} of a row depends on the rows beside it ({CAUSES})"
    return _larger_company(backend, parts, strangers, before, min(seconds))


def _larger_company(
    backend: Backend, parts: Sequence[Arrays], strangers: Sequence[Arrays], before: Sequence[np.ndarray], seconds: float
) -> str:
    """What is wrong when the parts come last in a run of many rows, which has taken them `seconds` by themselves; empty if they do not notice."""
    rows = sum(PARTS)
    times = max(1, min(WIDEST // (2 * rows), int(WIDE_SECONDS / max(2 * seconds, 1e-9))))
    try:
        wide = trial.run(backend, _merged([*strangers, *parts] * times))
    except OutOfMemory:
        return ""  # so many at once is not what the verdict is about: the batcher learns how many may be
    total = 2 * rows * times
    for index, spec in enumerate(backend.signature.outputs):
        if wide[index].shape[0] != total:
            return f"output {spec.name} has shape {list(wide[index].shape)} for {total} rows"
        if not trial.agree(spec, wide[index][-rows:], before[index], OTHER_SIZES):
            return f"output {spec.name} of a row depends on its place, or on how many there are"
    return ""


def _no(reason: str, *, tested: bool = True) -> Verdict:
    return Verdict(False, reason, tested)


def _named(size: int | str | None) -> int | str | None:
    return None if isinstance(size, str) and GENERATED.fullmatch(size) else size


def _shown(spec: TensorSpec) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in spec.shape) + "]"
