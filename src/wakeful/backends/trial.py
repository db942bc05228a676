"""Made-up inputs for a model, and when two of its answers count as equal.

Used to find out whether rows may share a run, and whether a prepared copy answers like its original.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.random import Generator, default_rng  # by name: `numpy` alone imports it at first use, which would be after the fork

from wakeful.backends.base import Backend
from wakeful.errors import OutOfMemory, WakefulError
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.tensors import DTYPES, narrow_bf16, widen_bf16

Arrays = dict[str, np.ndarray]

CEILINGS = (999, 99, 9, 1)
"""Largest whole numbers to try, largest first: token numbers may be large, an index or a mask may not."""


SAME_SHAPES = {"FP64": 1e-5, "FP32": 1e-5, "FP16": 1e-3, "BF16": 1e-2}
"""Rounding between runs of equal shapes: next to none, because the same kernels make the same sums in the same order. What rows really do to
each other is larger: an 8-bit range that they share moves them by up to 1/255."""

OTHER_SIZES = {"FP64": 1e-4, "FP32": 1e-4, "FP16": 5e-3, "BF16": 3e-2}
"""Rounding between runs of several rows each. On the processors seen there is none, as it is only for one row that a multiplication takes another
way; the bound leaves room for others. What depends faintly on the number or the place of rows is larger."""

OTHER_SHAPES = {"FP64": 2e-2, "FP32": 2e-2, "FP16": 5e-2, "BF16": 1e-1}
"""Rounding between a run of one row and one of several: a matrix multiplication cuts its sums by the number of rows. Mostly 1e-6, but a deep
network has been seen to make 6e-3 of it on noise (Magika). What depends on the number or the place of rows alone is far off."""


class Guess(NamedTuple):
    """Sizes for the free dimensions behind axis 0: of channels (axis 1 of four or more) and of all others."""

    channels: int
    others: int


# The small ones first, because they are quick; images and sounds that are halved several times need more.
GUESSES = tuple(Guess(size, size) for size in (8, 1, 2, 3, 4, 16, 32, 64, 128, 256)) + tuple(
    Guess(channels, size) for size in (32, 64, 224, 256) for channels in (3, 1)
)


class Recipe(NamedTuple):
    """What makes a model's inputs valid, found out by trying."""

    guess: Guess
    ceilings: Mapping[str, int]
    """Largest whole number that each integer input takes."""


class Style(NamedTuple):
    """What the elements of one made-up input look like: floats are around `centre`, spread by `spread`; integers reach up to `ceiling`."""

    centre: float
    spread: float
    ceiling: int


PLAIN = Style(0.5, 0.5, 1)
ZEROS = Style(0.0, 0.0, 0)
SIGNED = Style(0.0, 1.0, CEILINGS[0])
MIDDLE = Style(0.0, 5.0, 9)
"""What a model makes whole numbers of, or looks up in a table, is not the same few."""
LARGE = Style(0.0, 50.0, CEILINGS[0])
FAINT = Style(-0.01, 0.01, 9)


def find_recipe(backend: Backend) -> tuple[Recipe | None, str]:
    """Inputs that the model accepts, or None and why it refused the last of them.

    Raises OutOfMemory: then nothing has been found out.
    """
    whole = [spec.name for spec in required(backend.signature) if DTYPES[spec.datatype].numpy.lstrip("<")[0] in "iu" and spec.datatype != "BF16"]
    refusal = ""
    for guess in _distinct_guesses(backend.signature):
        recipe = Recipe(guess, dict.fromkeys(whole, 1))
        refusal = _refusal(backend, recipe, PLAIN)
        if not refusal:
            return _widen(backend, recipe), ""
    return None, refusal


def sample(signature: Signature, recipe: Recipe, style: Style, rows: int, random: Generator) -> Arrays:
    """All inputs that the model must have, with `rows` along every free axis 0. Equal symbols have equal sizes."""
    sizes: dict[str, int] = {}
    specs = required(signature)
    for spec in specs:
        if spec.shape and isinstance(spec.shape[0], str):
            sizes[spec.shape[0]] = rows
    arrays: Arrays = {}
    for spec in specs:
        shape = []
        for axis, size in enumerate(spec.shape):
            if isinstance(size, int):
                shape.append(size)
                continue
            free = rows if axis == 0 else recipe.guess.channels if axis == 1 and len(spec.shape) >= 4 else recipe.guess.others
            shape.append(free if size is None else sizes.setdefault(size, free))
        arrays[spec.name] = elements(spec, tuple(shape), style, recipe.ceilings.get(spec.name, 1), random)
    return arrays


def run(backend: Backend, inputs: Arrays) -> list[np.ndarray]:
    """A run as callers have it: the model may write into its inputs, and what it returned it may fill anew in its next run."""
    return [output.copy() for output in backend.run({name: array.copy() for name, array in inputs.items()})]


def required(signature: Signature) -> list[TensorSpec]:
    return [spec for spec in signature.inputs if not spec.optional]


def agree(spec: TensorSpec, got: np.ndarray, expected: np.ndarray, rounding: Mapping[str, float]) -> bool:
    """Are these two answers of output `spec` the same but for rounding? Integers, booleans and texts must be equal.

    Floats may differ by the share that `rounding` gives their datatype, of their own size and of the largest value in the row: what a sum
    cancels out leaves an error of the size of its terms.
    """
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    tolerance = rounding.get(spec.datatype)
    if tolerance is None:
        return bool(np.array_equal(got, expected))
    left, right = _real(spec, got), _real(spec, expected)
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.where(np.isfinite(right), np.abs(right), 0.0)
        largest = finite.max(axis=tuple(range(1, right.ndim)), keepdims=True, initial=0.0)
        near = np.abs(left - right) <= tolerance * (finite + largest) + 1e-9
    return bool(np.all(near | (left == right) | (np.isnan(left) & np.isnan(right))))


def _real(spec: TensorSpec, array: np.ndarray) -> np.ndarray:
    return (widen_bf16(array) if spec.datatype == "BF16" else array).astype(np.float64)


def _distinct_guesses(signature: Signature) -> Iterator[Guess]:
    """The guesses that differ for this model: one where nothing is free, and no images where nothing has channels."""
    free = [(axis, len(spec.shape)) for spec in required(signature) for axis, size in enumerate(spec.shape) if axis and not isinstance(size, int)]
    channels = any(axis == 1 and rank >= 4 for axis, rank in free)
    others = any(axis != 1 or rank < 4 for axis, rank in free)
    seen: set[tuple[int, int]] = set()
    for guess in GUESSES:
        key = (guess.channels if channels else 0, guess.others if others else 0)
        if key not in seen:
            seen.add(key)
            yield guess


def _widen(backend: Backend, recipe: Recipe) -> Recipe:
    """The same recipe with each integer input's ceiling as high as the model takes it."""
    for name in recipe.ceilings:
        for ceiling in CEILINGS[:-1]:
            wider = recipe._replace(ceilings={**recipe.ceilings, name: ceiling})
            if not _refusal(backend, wider, SIGNED):
                recipe = wider
                break
    return recipe


def _refusal(backend: Backend, recipe: Recipe, style: Style) -> str:
    """Why the model does not take such an input; empty if it does."""
    try:
        run(backend, sample(backend.signature, recipe, style, 1, default_rng(0)))
    except OutOfMemory:
        raise
    except WakefulError as error:
        return error.message
    return ""


def elements(spec: TensorSpec, shape: tuple[int, ...], style: Style, ceiling: int, random: Generator) -> np.ndarray:
    """One input of this shape."""
    top = min(style.ceiling, ceiling)
    match spec.datatype:
        case "BYTES":  # digits, because many models that take texts make numbers of them
            return np.array([str(n) for n in random.integers(0, top + 1, shape).ravel()], object).reshape(shape)
        case "BOOL":
            return random.integers(0, min(top, 1) + 1, shape).astype(bool)
        case "FP16" | "FP32" | "FP64":
            return (style.centre + style.spread * random.uniform(-1, 1, shape)).astype(DTYPES[spec.datatype].numpy)
        case "BF16":
            return narrow_bf16((style.centre + style.spread * random.uniform(-1, 1, shape)).astype("<f4"))
        case _:
            return random.integers(0, min(top, np.iinfo(DTYPES[spec.datatype].numpy).max) + 1, shape).astype(DTYPES[spec.datatype].numpy)
