"""Optional padding: requests whose inputs differ in length along one axis share a run. The shorter ones are filled up, and what they get is cut back.
With buckets, all are filled up, to one of a few lengths.

Only asked for where `pad` is configured. Whether filled-up elements leave a model's answers alone is for whoever sets it to know; that the cuts are
right is seen to here.
"""

import logging
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from wakeful.batching.policy import Limits
from wakeful.config.settings import Padding
from wakeful.errors import ExecutionFailed
from wakeful.inference import InferRequest
from wakeful.runtime.messages import Placement, Signature, TensorSpec
from wakeful.tensors import DTYPES, Tensor, decode_strings, element_count, encode_strings, narrow_bf16

log = logging.getLogger(__name__)

Shape = tuple[int, ...]


FINEST = 8
"""Elements: it would take more runs to tell shorter lengths apart than filling up costs."""


def length_class(length: int) -> int:
    """Requests of one class share runs: the next larger of 8, 16, ... 64, 80, ... 128, 160 and so on, so that less than a quarter is filled up."""
    step = max(FINEST, 1 << max((length - 1).bit_length() - 3, 0))
    return -(-length // step) * step


class Padder:
    """Fills up and cuts back for one signature.

    An output that names the inputs' padded dimension is cut along it, one whose dimensions are all fixed is not. Where the names do not tell, two
    lone runs of different lengths do (`learn`); until then a padded run is not answered, so that its members run alone and tell.
    """

    def __init__(self, padding: Padding, signature: Signature) -> None:
        self._axis = padding.axis
        self._buckets = padding.buckets
        self._specs = {spec.name: spec for spec in signature.inputs}
        self._mask = self._specs.get(padding.mask) if padding.mask is not None else None
        free = [spec for spec in signature.inputs if len(spec.shape) > padding.axis and not isinstance(spec.shape[padding.axis], int)]
        self._budget = padding.budget
        self._most_rows: dict[Hashable, int] = {}
        """By group, where there is a budget."""
        fills = {spec.name: _fill(padding.value if self._takes_value(spec, padding) else 0.0, spec) for spec in free}
        self._fills = {name: fill for name, fill in fills.items() if fill is not None}
        """By input that is filled up."""
        symbols = {spec.shape[padding.axis] for spec in free} - {None}
        self._cuts = {spec.name: _declared_cuts(spec, symbols) for spec in signature.outputs}
        """Axes along which an output is cut back; None: not known yet."""
        self._seen: dict[str, tuple[int, Shape]] = {}
        """Length and shape of an output's first lone run, while its axes are not known."""

    def _takes_value(self, spec: TensorSpec, padding: Padding) -> bool:
        return spec is not self._mask and padding.target in (None, spec.name)

    # ── before the run ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def length(self, shapes: Iterable[tuple[str, Shape]]) -> int | None:
        """The length that all inputs to be filled up have; None if they disagree: such a request is not padded."""
        lengths = {shape[self._axis] for name, shape in shapes if name in self._fills}
        return lengths.pop() if len(lengths) == 1 else None

    def trailing(self, name: str, shape: Shape) -> Shape:
        """The sizes in which an input's companions must agree with it: all but axis 0 and the padded axis."""
        if name not in self._fills:
            return shape[1:]
        alike = -1 if self._budget is None else -length_class(shape[self._axis])
        return (*shape[1 : self._axis], alike, *shape[self._axis + 1 :])

    def bound(self, group: Hashable, length: int) -> None:
        """A new group has requests of about this length."""
        if self._budget is not None:
            self._most_rows[group] = max(self._budget // length_class(length), 1)

    def limits(self, group: Hashable, limits: Limits) -> Limits:
        """What a run of this group may be: of fewer rows where they are long."""
        most = self._most_rows.get(group, limits.max_rows)
        return limits if most >= limits.max_rows else replace(limits, max_rows=most)

    def with_mask(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Add a mask of ones if the model takes one and the caller has not sent it."""
        mask = self._mask
        if mask is None or any(tensor.name == mask.name for tensor in inputs):
            return inputs
        shape = self._mask_shape(mask, [tensor for tensor in inputs if tensor.name in self._fills and len(tensor.shape) > self._axis])
        if shape is None or (fill := _fill(1.0, mask)) is None:  # the validator says that the mask is missing
            return inputs
        return [*inputs, _tensor(mask.name, mask.datatype, np.full(shape, fill))]

    def _mask_shape(self, mask: TensorSpec, inputs: Sequence[Tensor]) -> Shape | None:
        """The mask's shape from the inputs that are filled up; None if it does not follow from them, or is larger than any of them."""
        length = self.length((tensor.name, tensor.shape) for tensor in inputs)
        if length is None:
            return None
        sizes: dict[int | str | None, int] = {}
        for tensor in inputs:
            sizes.update(zip(self._specs[tensor.name].shape, tensor.shape, strict=False))
        places = {0: inputs[0].shape[0], self._axis: length}
        found = [size if isinstance(size, int) else sizes.get(size or "", places.get(axis)) for axis, size in enumerate(mask.shape)]
        shape = tuple(size for size in found if size is not None)
        fits = len(shape) == len(found) and element_count(shape) <= max(element_count(tensor.shape) for tensor in inputs)
        return shape if fits else None

    def common_length(self, requests: Sequence[InferRequest]) -> int | None:
        """How long the inputs of a batch are to be: as the longest of them, or its bucket. None: they stay as they are.

        While it is not known how an output is cut, a lone request is not filled up: it is the one that tells.
        """
        longest = max(self._lengths(requests), default=None)
        if longest is None or not self._buckets or (len(requests) == 1 and None in self._cuts.values()):
            return longest
        return next((bucket for bucket in self._buckets if bucket >= longest), longest)

    def fill(self, requests: Sequence[InferRequest], common: int | None) -> list[Sequence[Tensor]]:
        """The inputs of a batch, all of the length that `common_length` has told."""
        if common is None:
            return [request.inputs for request in requests]
        return [
            request.inputs if length == common else [self._filled(tensor, common) for tensor in request.inputs]
            for request, length in zip(requests, self._lengths(requests), strict=True)
        ]

    def _lengths(self, requests: Sequence[InferRequest]) -> list[int]:
        """Of all, or of none: the members of a batch are alike in that."""
        lengths = [self.length((tensor.name, tensor.shape) for tensor in request.inputs) for request in requests]
        return [length for length in lengths if length is not None]

    def _filled(self, tensor: Tensor, common: int) -> Tensor:
        fill = self._fills.get(tensor.name)
        if fill is None:
            return tensor
        name, datatype, shape, _ = tensor
        full = np.full((*shape[: self._axis], common, *shape[self._axis + 1 :]), fill)
        full[(slice(None),) * self._axis + (slice(shape[self._axis]),)] = _array(tensor)
        return _tensor(name, datatype, full)

    # ── after it ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def cut(self, requests: Sequence[InferRequest], answers: Sequence[list[Tensor]], common: int | None) -> list[list[Tensor]]:
        """Each caller's outputs without what was filled up to the length `common`.

        Raises ExecutionFailed where an output's axes are not known, or are not as long as the batch: a guess would give wrong answers.
        """
        lengths = self._lengths(requests)
        if common is None or min(lengths) == common:
            return list(answers)
        return [[self._shortened(tensor, length, common) for tensor in answer] for length, answer in zip(lengths, answers, strict=True)]

    def _shortened(self, tensor: Tensor, length: int, common: int) -> Tensor:
        axes = self._cuts[tensor.name]
        if axes is None:
            raise ExecutionFailed(f"it is not known yet whether output {tensor.name} has the padded axis")
        if any(tensor.shape[axis] != common for axis in axes):
            raise ExecutionFailed(f"output {tensor.name} has shape {list(tensor.shape)} for a padded length of {common}, so it cannot be cut back")
        if not axes or length == common:
            return tensor
        kept = tuple(slice(length) if axis in axes else slice(None) for axis in range(len(tensor.shape)))
        return _tensor(tensor.name, tensor.datatype, _array(tensor)[kept])

    def learn(self, request: InferRequest, outputs: Sequence[Placement]) -> None:
        """See from the outputs of a lone run which of their axes follow the length."""
        length = self.length((tensor.name, tensor.shape) for tensor in request.inputs)
        for output in outputs:
            if length is not None and self._cuts[output.name] is None:
                seen = self._seen.setdefault(output.name, (length, output.shape))
                if seen[0] != length:
                    self._cuts[output.name] = _following(seen, (length, output.shape))


def _declared_cuts(spec: TensorSpec, symbols: set[int | str | None]) -> tuple[int, ...] | None:
    named = tuple(axis for axis, size in enumerate(spec.shape) if axis and size in symbols)
    fixed = bool(spec.shape) and all(isinstance(size, int) for size in spec.shape[1:])
    return named if named or fixed else None


def _following(one: tuple[int, Shape], other: tuple[int, Shape]) -> tuple[int, ...] | None:
    """Axes whose size was the length in both runs; None if one changed in another way, or if the ranks differ."""
    if len(one[1]) != len(other[1]):
        return None
    axes = tuple(axis for axis in range(1, len(one[1])) if (one[1][axis], other[1][axis]) == (one[0], other[0]))
    others_equal = all(axis in axes or one[1][axis] == other[1][axis] for axis in range(1, len(one[1])))
    return axes if others_equal else None


def _fill(value: float, spec: TensorSpec) -> np.ndarray | None:
    """`value` as an element of an input, empty text for BYTES; None where the datatype does not have it."""
    if spec.datatype == "BYTES":
        return np.array(b"", object)
    if spec.datatype == "BF16":
        return narrow_bf16(np.array(value, "<f4"))
    with np.errstate(all="ignore"):
        fill = np.array(value).astype(DTYPES[spec.datatype].numpy)
    if fill.dtype.kind != "f" and float(fill) != value:
        log.warning("pad: %s has no value %g, so input %s is not filled up", spec.datatype, value, spec.name)
        return None
    return fill


def _array(tensor: Tensor) -> np.ndarray:
    if tensor.datatype == "BYTES":
        elements = np.empty(element_count(tensor.shape), object)
        elements[:] = decode_strings(tensor.data, elements.size)
        return elements.reshape(tensor.shape)
    return np.ndarray(tensor.shape, DTYPES[tensor.datatype].numpy, buffer=tensor.data)


def _tensor(name: str, datatype: str, array: np.ndarray) -> Tensor:
    data = encode_strings(array.ravel().tolist()) if datatype == "BYTES" else array.tobytes()
    return Tensor(name, datatype, array.shape, data)
