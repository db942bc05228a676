"""Inputs made up from a model's description: random, the same again for the same seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wakeful.errors import InvalidInput
from wakeful.loadgen.target import InputSpec
from wakeful.tensors import DTYPES, Tensor, encode_strings, narrow_bf16

WORDS = (b"wake", b"sleep", b"river", b"stone", b"early", b"paper", b"blue", b"seven")
LARGEST = 1 << 30
"""Bytes of one input: more is a mistake in a dimension."""


@dataclass(frozen=True)
class Wishes:
    """What the caller knows better than the description."""

    dims: Mapping[str, int] = field(default_factory=dict)
    """Sizes of free dimensions, by the axis' number or by the name that the server gives it."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Whole shapes, by input."""
    integers: tuple[int, int] = (0, 1)
    """Smallest and largest integer. 0 and 1 are valid as a mask, as a token, and as the index of nearly everything."""


@dataclass(frozen=True)
class Plan:
    """Shapes for all inputs of a model, but for the rows."""

    inputs: tuple[tuple[InputSpec, tuple[int | None, ...]], ...]
    """None: as many as there are rows."""
    assumed: tuple[str, ...]
    """Free dimensions of which nobody said anything and which became 1."""

    @property
    def free_rows(self) -> bool:
        return any(None in shape for _, shape in self.inputs)


def plan(model: str, specs: Sequence[InputSpec], wishes: Wishes) -> Plan:
    """Decide the shapes. Raises InvalidInput where they cannot be known, or where a wish concerns nothing."""
    if not specs:
        raise InvalidInput(f"the server does not say what {model} takes")
    names = [spec.name for spec in specs]
    if lost := [name for name in wishes.shapes if name not in names]:
        raise InvalidInput(f"{model} has no input {lost[0]}; it has {', '.join(names)}")
    assumed: list[str] = []
    shapes = tuple((spec, _shape(spec, wishes, assumed)) for spec in specs)
    for spec, _ in shapes:
        if spec.datatype not in DTYPES:
            raise InvalidInput(f"input {spec.name} of {model} has the datatype {spec.datatype}, of which no values can be made up")
    return Plan(shapes, tuple(assumed))


def unused(dims: Mapping[str, int], specs: Sequence[InputSpec]) -> list[str]:
    """Those of `dims` that fit no free dimension."""
    known = {key for spec in specs for axis, size in enumerate(spec.shape) if _is_free(size) for key in (str(axis), str(size))}
    return [key for key in dims if key not in known]


def make(plan: Plan, rows: int, integers: tuple[int, int], random: np.random.Generator) -> tuple[Tensor, ...]:
    """Random tensors of these shapes with so many rows."""
    return tuple(_tensor(spec, tuple(rows if size is None else size for size in shape), integers, random) for spec, shape in plan.inputs)


def _is_free(size: int | str) -> bool:
    return isinstance(size, str) or size < 0


def _shape(spec: InputSpec, wishes: Wishes, assumed: list[str]) -> tuple[int | None, ...]:
    given = wishes.shapes.get(spec.name)
    if given is not None:
        return given
    shape: list[int | None] = []
    for axis, size in enumerate(spec.shape):
        wish = wishes.dims.get(str(size), wishes.dims.get(str(axis)))
        if not isinstance(size, str) and size >= 0:
            shape.append(size)
        elif wish is not None:
            shape.append(wish)
        elif axis == 0:
            shape.append(None)
        else:
            shape.append(1)
            assumed.append(f"{spec.name} axis {axis}" + (f" ({size})" if isinstance(size, str) else ""))
    return tuple(shape)


def _tensor(spec: InputSpec, shape: tuple[int, ...], integers: tuple[int, int], random: np.random.Generator) -> Tensor:
    dtype, count = DTYPES[spec.datatype], math.prod(shape)
    if count * max(dtype.itemsize, 8) > LARGEST:
        raise InvalidInput.field(f"input {spec.name}", f"at most {LARGEST >> 20} MiB", f"shape {list(shape)}")
    if dtype.name == "BYTES":
        data = encode_strings([WORDS[index] for index in random.integers(len(WORDS), size=count)])
    elif dtype.name == "BOOL":
        data = random.integers(2, size=count).astype("?").tobytes()
    elif dtype.name == "BF16":
        data = narrow_bf16(random.random(count, np.float32)).tobytes()
    elif dtype.numpy[1] == "f":
        data = random.random(count, np.float32).round(4).astype(dtype.numpy).tobytes()
    else:
        low, high = integers
        limits = np.iinfo(dtype.numpy)
        if low < limits.min or high > limits.max:
            raise InvalidInput.field("--int-range", f"numbers that fit {dtype.name}, the datatype of input {spec.name}", f"{low} to {high}")
        data = random.integers(low, high, size=count, dtype=dtype.numpy, endpoint=True).tobytes()
    return Tensor(spec.name, dtype.name, shape, data)
