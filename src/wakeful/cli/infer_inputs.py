"""Tensors for `wakeful infer`: from a file, or made up from what the model says it takes. Pure but for the reading."""

import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wakeful.cli.client import Failure
from wakeful.cli.status import WRONG_USE

Tensor = dict[str, Any]
"""As the Open Inference Protocol has it in JSON."""
MADE_UP = ("zeros", "random")
MOST_VALUES = 10_000_000


def made_up(inputs: Sequence[Mapping[str, Any]], how: str, rows: int, size: int, seed: int) -> list[Tensor]:
    """Zeros, or random values that are the same for the same seed. Free first dimensions become `rows`, other free ones `size`."""
    source = random.Random(seed)
    return [_tensor(spec, [_size(extent, axis, rows, size) for axis, extent in enumerate(spec["shape"])], how, source) for spec in inputs]


def _size(extent: int, axis: int, rows: int, size: int) -> int:
    return extent if extent >= 0 else rows if axis == 0 else size


def _tensor(spec: Mapping[str, Any], shape: list[int], how: str, source: random.Random) -> Tensor:
    count = 1
    for extent in shape:
        count *= extent
    if count > MOST_VALUES:
        raise Failure("invalid_input", f"{spec['name']} would have {count} values: give fewer rows, or a file", WRONG_USE)
    value = _maker(spec["datatype"], how, source)
    return {"name": spec["name"], "datatype": spec["datatype"], "shape": shape, "data": [value() for _ in range(count)]}


def _maker(datatype: str, how: str, source: random.Random) -> Callable[[], Any]:
    zeros = how == "zeros"
    if datatype == "BYTES":
        return lambda: "" if zeros else source.choice(("red", "green", "blue"))
    if datatype == "BOOL":
        return lambda: not zeros and source.random() < 0.5
    if datatype.startswith(("INT", "UINT")):
        return lambda: 0 if zeros else source.randrange(10)
    return lambda: 0.0 if zeros else round(source.uniform(-1, 1), 4)


def read(place: str, inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A whole request, from JSON as it is, in a file or on stdin ("-"): a request of the Open Inference Protocol; `{"name": nested lists}`; or
    nested lists for a model with one input. Raises Failure."""
    as_it_is = place.lstrip().startswith(("{", "["))
    try:
        text = place if as_it_is else sys.stdin.read() if place == "-" else Path(place).read_text("utf-8")
        value = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = f"or JSON such as [[1, 2]], or one of {', '.join(MADE_UP)}" if place != "-" else None
        raise Failure("invalid_input", f"{'stdin' if place == '-' else place}: {reason}", WRONG_USE, hint) from None
    if isinstance(value, dict) and isinstance(value.get("inputs"), list):
        return value
    specs = {spec["name"]: spec for spec in inputs}
    if not isinstance(value, dict):
        if len(specs) != 1:
            raise Failure("invalid_input", f'the model has {len(specs)} inputs: write {{"name": values}}', WRONG_USE, f"they are {', '.join(specs)}")
        value = {next(iter(specs)): value}
    if unknown := [name for name in value if name not in specs]:
        raise Failure("invalid_input", f"the model has no input {unknown[0]}", WRONG_USE, f"its inputs are {', '.join(specs)}")
    return {"inputs": [_given(specs[name], values) for name, values in value.items()]}


def _given(spec: Mapping[str, Any], values: Any) -> Tensor:
    shape, flat = [], values
    inner = values
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None
    for _ in range(len(shape) - 1):
        if not all(isinstance(part, list) and len(part) == len(flat[0]) for part in flat):
            raise Failure("invalid_input", f"the lists of {spec['name']} are not all equally long", WRONG_USE)
        flat = [value for part in flat for value in part]
    return {"name": spec["name"], "datatype": spec["datatype"], "shape": shape or [1], "data": flat if shape else [values]}
