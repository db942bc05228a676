"""Does a request fit a model's signature, how many rows has it, and with which others may it share a run?"""

from collections.abc import Callable, Hashable
from itertools import count
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from wakeful.batching.padding import Padder
from wakeful.errors import InvalidInput
from wakeful.inference import InferRequest
from wakeful.runtime.messages import PACKET, Signature, TensorSpec
from wakeful.tensors import DTYPES, Tensor

MEMO_SIZE = 4096
"""Request forms that are remembered; a client may send any number of different shapes."""
PLACE_BYTES, SIZE_BYTES = 40, 9
"""What a tensor, and a size of its shape, take at most of the message that tells a replica where they lie ..."""
MOST_TOLD = PACKET - 1024
"""... and what that message holds of them: one that is longer would never be read."""

Key = tuple[str, str, tuple[int, ...]]
"""Name, datatype and shape of an input."""

_form: Callable[[Tensor], Key] = itemgetter(slice(3))

_new_group = count().__next__
"""Numbers of groups, unique in the daemon's life: what was grouped by an earlier validator may still wait."""


class Form(NamedTuple):
    """What follows from a request's names, datatypes and shapes alone."""

    rows: int
    group: Hashable
    order: tuple[int, ...] | None
    """Positions of the request's inputs in the model's order; None if they are in that order already."""


def show_shape(shape: tuple[int | str | None, ...]) -> str:
    return "[" + ",".join("?" if size is None else str(size) for size in shape) + "]"


def fixed_batch(signature: Signature) -> str:
    """Which input fixes the number of rows, so that no word of its owner can make it take more; empty if none does."""
    sizes = {spec.name: spec.shape[0] for spec in signature.inputs if spec.shape and not spec.optional}
    return next((f"input {name} has axis 0 fixed to {size}" for name, size in sizes.items() if isinstance(size, int)), "")


class Validator:
    """Checks requests against one signature. Forms that were seen before cost one look-up."""

    def __init__(self, signature: Signature, *, mergeable: bool, padder: Padder | None = None) -> None:
        self.signature = signature
        self.mergeable = mergeable
        self._padder = padder
        self._inputs = {spec.name: position for position, spec in enumerate(signature.inputs)}
        self._outputs = frozenset(spec.name for spec in signature.outputs)
        self._required = frozenset(spec.name for spec in signature.inputs if not spec.optional)
        self._undeclared = signature.undeclared
        self._forms: dict[tuple[Key, ...], Form] = {}
        self._groups: dict[Hashable, int] = {}

    def __call__(self, request: InferRequest) -> None:
        """Set `rows` and `group` of the request and bring its inputs into the model's order.

        Raises InvalidInput naming the field, what the model expects and what came.
        """
        if request.coerce:
            request.inputs = [self._cast(tensor) for tensor in request.inputs]
            request.coerce = False
        if self._padder is not None:
            request.inputs = self._padder.with_mask(request.inputs)
        key = tuple(map(_form, request.inputs))
        form = self._forms.get(key) or self._learn(key)
        if form.order is not None:
            request.inputs = [request.inputs[position] for position in form.order]
        request.rows = form.rows
        request.group = form.group
        if request.outputs is not None and not self._undeclared and not self._outputs.issuperset(request.outputs):
            unknown = next(name for name in request.outputs if name not in self._outputs)
            raise InvalidInput.field("outputs", f"names among {sorted(self._outputs)}", f"{unknown!r}")

    def _learn(self, key: tuple[Key, ...]) -> Form:
        told = sum(len(name.encode()) + PLACE_BYTES + SIZE_BYTES * len(shape) for name, _, shape in key)
        if told > MOST_TOLD:
            raise InvalidInput.field("inputs", f"names and shapes of at most {MOST_TOLD} bytes together", f"{len(key)} inputs that take {told}")
        positions = list(range(len(key))) if self._undeclared else self._positions(key)
        ordered = tuple(key[at] for at in positions)
        rows, group = self._merging(ordered)
        form = Form(rows, group, None if positions == list(range(len(key))) else tuple(positions))
        if len(self._forms) >= MEMO_SIZE:
            self._forms.clear()
            self._groups.clear()
        self._forms[key] = form
        return form

    def _positions(self, key: tuple[Key, ...]) -> list[int]:
        """Of the inputs, in the model's order. Raises InvalidInput where they are not what it declares."""
        names = [name for name, _, _ in key]
        for name, datatype, shape in key:
            self._check(name, datatype, shape)
        missing = self._required.difference(names)
        if missing:
            raise InvalidInput.field("inputs", f"{sorted(self._required)}", f"no {min(missing)!r}")
        return sorted(range(len(key)), key=lambda at: self._inputs[names[at]])

    def _check(self, name: str, datatype: str, shape: tuple[int, ...]) -> None:
        position = self._inputs.get(name)
        if position is None:
            raise InvalidInput.field("inputs", f"names among {list(self._inputs)}", f"{name!r}")
        spec = self.signature.inputs[position]
        if datatype != spec.datatype:
            raise InvalidInput.field(f"input {name}: datatype", spec.datatype, datatype)
        fits = not spec.shape or (
            len(shape) == len(spec.shape)
            and all(not isinstance(expected, int) or expected == size for expected, size in zip(spec.shape, shape, strict=True))
        )
        if not fits:
            raise InvalidInput(f"shape mismatch: input {name}: expected {show_shape(spec.shape)}, got {show_shape(shape)}")

    def _merging(self, ordered: tuple[Key, ...]) -> tuple[int, Hashable]:
        """Rows and group. A request whose inputs disagree on axis 0, that has no rows, or that gives an optional input, runs alone.

        So does one without any element: a few bytes may claim any number of such rows, and each would count.
        """
        if all(0 in shape for _, _, shape in ordered):
            return 1, None
        sizes = {shape[0] if shape else 0 for _, _, shape in ordered}
        rows = sizes.pop() if len(sizes) == 1 else 0
        optional = not self._undeclared and any(name not in self._required for name, _, _ in ordered)
        if not self.mergeable or rows == 0 or optional:
            return max(rows, 1), None
        likeness = self._likeness(ordered)
        if likeness not in self._groups:
            group = self._groups[likeness] = _new_group()
            if self._padder is not None and (length := self._padder.length((name, shape) for name, _, shape in ordered)) is not None:
                self._padder.bound(group, length)
        return rows, self._groups[likeness]

    def _likeness(self, ordered: tuple[Key, ...]) -> tuple[Key, ...]:
        """What the members of a batch have in common: all but axis 0, and but the padded axis."""
        padder = self._padder
        if padder is None or padder.length((name, shape) for name, _, shape in ordered) is None:
            return tuple((name, datatype, shape[1:]) for name, datatype, shape in ordered)
        return tuple((name, datatype, padder.trailing(name, shape)) for name, datatype, shape in ordered)

    def _cast(self, tensor: Tensor) -> Tensor:
        """A tensor of plain numbers in the datatype that the model declares; as they came over the wire where it declares nothing."""
        if self._undeclared:
            return cast(tensor, TensorSpec(tensor.name, "FP32", ()))
        position = self._inputs.get(tensor.name)
        if position is None:
            return tensor
        return cast(tensor, self.signature.inputs[position])


def cast(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """Cast numbers to the datatype of `spec`. Raises InvalidInput for text models and for numbers that do not fit."""
    datatype = spec.datatype
    if datatype == tensor.datatype:
        return tensor
    if datatype in ("BYTES", "BF16"):
        raise InvalidInput(f"input {tensor.name}: the model takes {datatype}, which this API cannot carry; use /v2/models/{{model}}/infer")
    values = np.frombuffer(tensor.data, DTYPES[tensor.datatype].numpy)
    kind = np.dtype(DTYPES[datatype].numpy)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        beyond = float(limits.max + 1)  # exact, as `limits.max` is not where it is 2**63 - 1
        if not np.isfinite(values).all() or (values.size and (values.min() < limits.min or values.max() >= beyond)):
            raise InvalidInput.field(f"input {tensor.name}: data", f"numbers that fit {datatype}", "one that does not")
        if (values != np.floor(values)).any():
            raise InvalidInput.field(f"input {tensor.name}: data", f"whole numbers, as the model takes {datatype}", "one with a fraction")
    with np.errstate(over="ignore"):
        fitted = values.astype(kind)
    if kind.kind == "f" and not np.isfinite(fitted).all():
        raise InvalidInput.field(f"input {tensor.name}: data", f"numbers that fit {datatype}", "one that does not")
    return Tensor(tensor.name, datatype, tensor.shape, fitted.tobytes())
