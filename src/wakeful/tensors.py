"""Tensors as they travel: a name, an Open Inference datatype, a shape and little-endian row-major bytes.

BYTES tensors are encoded as in the protocol's binary extension: each element is a 32-bit little-endian length and then its bytes. In this form
joining tensors along axis 0 is joining their bytes, for every datatype.
"""

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wakeful.errors import InvalidInput

Buffer = bytes | bytearray | memoryview


class DType(NamedTuple):
    """A datatype of the Open Inference Protocol."""

    name: str
    itemsize: int
    """Bytes an element; 0 where elements differ in size (BYTES)."""
    numpy: str
    """NumPy's little-endian type string. BF16 has none and is carried as uint16; BYTES is carried as objects."""


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("BOOL", 1, "?"),
        DType("UINT8", 1, "u1"),
        DType("UINT16", 2, "<u2"),
        DType("UINT32", 4, "<u4"),
        DType("UINT64", 8, "<u8"),
        DType("INT8", 1, "i1"),
        DType("INT16", 2, "<i2"),
        DType("INT32", 4, "<i4"),
        DType("INT64", 8, "<i8"),
        DType("FP16", 2, "<f2"),
        DType("BF16", 2, "<u2"),
        DType("FP32", 4, "<f4"),
        DType("FP64", 8, "<f8"),
        DType("BYTES", 0, "O"),
    )
}

LENGTH = struct.Struct("<I")


class Tensor(NamedTuple):
    """One named tensor. `data` holds `prod(shape)` elements, row-major, little-endian."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Buffer


def element_count(shape: Sequence[int]) -> int:
    """Elements of a tensor of this shape; 1 for a scalar, exact for any size (Python integers do not wrap)."""
    return math.prod(shape)


def widen_bf16(elements: np.ndarray) -> np.ndarray:
    """BF16 elements, carried as uint16, as FP32: they are its upper half."""
    return (elements.astype("<u4") << 16).view("<f4")


def narrow_bf16(elements: np.ndarray) -> np.ndarray:
    """FP32 elements as BF16, carried as uint16. What does not fit is cut off, not rounded."""
    return (elements.view("<u4") >> 16).astype("<u2")


def encode_strings(elements: Sequence[bytes]) -> bytes:
    """Encode BYTES elements, each as its 32-bit length and its bytes."""
    parts: list[bytes] = []
    for element in elements:
        parts.append(LENGTH.pack(len(element)))
        parts.append(element)
    return b"".join(parts)


def decode_strings(data: Buffer, count: int, field: str = "data") -> list[bytes]:
    """Decode `count` BYTES elements.

    Raises InvalidInput naming `field` when the lengths do not fill `data` exactly.
    """
    elements: list[bytes] = []
    offset, end = 0, len(data)
    for index in range(count):
        if offset + 4 > end:
            raise InvalidInput.field(field, f"{count} BYTES elements", f"only {index} in {end} bytes")
        (length,) = LENGTH.unpack_from(data, offset)
        offset += 4
        if offset + length > end:
            raise InvalidInput.field(field, f"{length} bytes for element {index}", f"only {end - offset} left")
        elements.append(bytes(data[offset : offset + length]))
        offset += length
    if offset != end:
        raise InvalidInput.field(field, f"{count} BYTES elements ({offset} bytes)", f"{end} bytes")
    return elements


def string_offsets(data: Buffer, count: int) -> list[int]:
    """Byte offsets of `count` BYTES elements and of the end, `count + 1` numbers; `data` must be well formed."""
    offsets, offset = [0], 0
    for _ in range(count):
        offset += 4 + LENGTH.unpack_from(data, offset)[0]
        offsets.append(offset)
    return offsets
