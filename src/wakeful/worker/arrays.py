"""Tensors in a slot of the arena, as arrays: inputs without a copy, outputs with one."""

from collections.abc import Iterator, Sequence

import numpy as np

from wakeful.errors import InvalidInput
from wakeful.runtime.arena import aligned
from wakeful.runtime.messages import Placement, TensorSpec
from wakeful.tensors import DTYPES, LENGTH, decode_strings, element_count, encode_strings

NUMPY = {name: np.dtype(dtype.numpy) for name, dtype in DTYPES.items()}


def read(placement: Placement, slot: memoryview, *, binary: bool = False) -> np.ndarray:
    """A view of an input. BYTES come as objects: `bytes` if `binary`, else `str`, because ONNX Runtime takes the repr of anything else.

    Raises InvalidInput where BYTES are to be text and are not UTF-8, or where a shape without elements has more than NumPy can count in its other
    dimensions.
    """
    try:
        if placement.datatype != "BYTES":
            return np.ndarray(placement.shape, NUMPY[placement.datatype], slot, placement.offset)
        elements = np.empty(element_count(placement.shape), object)
        elements[:] = decode_strings(slot[placement.offset : placement.offset + placement.nbytes], elements.size, placement.name)
        return (elements if binary else _texts(placement, elements)).reshape(placement.shape)
    except ValueError as error:
        raise InvalidInput(f"input {placement.name}: shape {list(placement.shape)} cannot be held: {error}") from error


def _texts(placement: Placement, elements: np.ndarray) -> np.ndarray:
    for index, element in enumerate(elements):
        try:
            elements[index] = element.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput.field(placement.name, "UTF-8 text", f"{error.reason} in element {index}") from error
    return elements


def layout(specs: Sequence[TensorSpec], arrays: Sequence[np.ndarray], start: int) -> tuple[tuple[Placement, ...], int]:
    """Where outputs will lie from `start` on, each aligned, and the size that the slot must have for `fill`."""
    placements, end = [], start
    for spec, array in zip(specs, arrays, strict=True):
        offset = aligned(end)
        if spec.datatype == "BYTES":
            nbytes = sum(LENGTH.size + len(element) for element in _elements(array))
        else:
            nbytes = array.size * NUMPY[spec.datatype].itemsize
        placements.append(Placement(spec.name, spec.datatype, array.shape, offset, nbytes))
        end = offset + nbytes
    return tuple(placements), end


def fill(slot: memoryview, placements: Sequence[Placement], arrays: Sequence[np.ndarray]) -> None:
    """Write outputs to their places, whatever their strides and byte order.

    Raises TypeError when an array is not of the type that its output declares: casting it would change values in silence.
    """
    for placement, array in zip(placements, arrays, strict=True):
        if placement.datatype == "BYTES":
            slot[placement.offset : placement.offset + placement.nbytes] = encode_strings(list(_elements(array)))
        else:
            dtype = NUMPY[placement.datatype]
            if array.dtype != dtype and array.dtype.newbyteorder("<") != dtype:
                raise TypeError(f"output {placement.name} is {array.dtype}, declared is {placement.datatype}")
            np.ndarray(placement.shape, dtype, slot, placement.offset)[...] = array


def _elements(array: np.ndarray) -> Iterator[bytes]:
    return (element if isinstance(element, bytes) else str(element).encode() for element in array.ravel())
