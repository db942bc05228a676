"""Does a prepared copy answer like the model that it was made of?"""

from collections.abc import Sequence

import numpy as np
from numpy.random import default_rng

from wakeful.backends import catalog, trial
from wakeful.backends.base import Backend, LoadOptions
from wakeful.backends.trial import LARGE, MIDDLE, OTHER_SHAPES, PLAIN, SAME_SHAPES, SIGNED, ZEROS, Arrays
from wakeful.errors import OutOfMemory, Unavailable, WakefulError
from wakeful.runtime.messages import Compare, Compared, TensorSpec
from wakeful.tensors import widen_bf16

STYLES = (PLAIN, SIGNED, ZEROS, MIDDLE, LARGE)
ROWS = (1, 2)


def compare(order: Compare) -> Compared:
    """Run both on inputs of several kinds. A draft of the copy, which answers first, may round otherwise. Raises what keeps one from being opened."""
    module = catalog.module(order.backend)
    original = module.open_model(order.path, LoadOptions("cpu"))
    copy = module.open_model(order.path, LoadOptions("cpu", prepared=order.prepared))
    if not copy.prepared:
        raise Unavailable("the prepared copy does not load")
    recipe, refusal = trial.find_recipe(original)
    if recipe is None:
        return Compared(True, None, 0, f"no input was found that it takes: {refusal}")
    samples = [trial.sample(original.signature, recipe, style, rows, default_rng(rows)) for style in STYLES for rows in ROWS]
    pairs = [Pair(original, copy, sample) for sample in samples[: 1 if copy.draft else 0]]
    unequal = {spec.name for pair in pairs for spec in pair.unequal(OTHER_SHAPES)}
    copy.settle()
    largest: float | None = None
    answered, by_chance = 0, False
    for sample in samples:
        try:
            pair = Pair(original, copy, sample)
        except OutOfMemory:
            raise
        except WakefulError:  # it takes one row alone, or no large values
            continue
        answered += 1
        unequal |= {spec.name for spec in pair.unequal(SAME_SHAPES)}
        by_chance = by_chance or bool(pair.by_chance)
        largest = max([difference for difference in (largest, pair.difference()) if difference is not None], default=None)
    remark = f"other answers in {', '.join(sorted(unequal))}" if unequal else "some outputs are drawn by chance" if by_chance else ""
    return Compared(not unequal, largest, answered, remark)


class Pair:
    """The answers of both to one input."""

    def __init__(self, original: Backend, copy: Backend, inputs: Arrays) -> None:
        first, again = trial.run(original, inputs), trial.run(original, inputs)
        self._outputs = list(zip(original.outputs, first, trial.run(copy, inputs), strict=True))
        twice = zip(original.outputs, first, again, strict=True)
        self.by_chance = {spec.name for spec, one, other in twice if not trial.agree(spec, other, one, SAME_SHAPES)}
        """Outputs of a model that draws random numbers: they cannot be compared."""

    def unequal(self, rounding: dict[str, float]) -> Sequence[TensorSpec]:
        return [spec for spec, one, got in self._outputs if spec.name not in self.by_chance and not trial.agree(spec, got, one, rounding)]

    def difference(self) -> float | None:
        """Largest one of two elements that are numbers; None where there are none, or of other shapes."""
        found = [_difference(spec, one, got) for spec, one, got in self._outputs if spec.name not in self.by_chance]
        return max((one for one in found if one is not None), default=None)


def _difference(spec: TensorSpec, one: np.ndarray, got: np.ndarray) -> float | None:
    if spec.datatype == "BYTES" or one.shape != got.shape or not one.size:
        return None
    left, right = ((widen_bf16(array) if spec.datatype == "BF16" else array).astype(np.float64) for array in (one, got))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(left - right)
    apart[(left == right) | (np.isnan(left) & np.isnan(right))] = 0.0
    finite = apart[np.isfinite(apart)]
    return float(finite.max()) if finite.size else None
