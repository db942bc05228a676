"""Tensors that come as raw bytes: as binary data over REST, as raw contents over gRPC."""

import math
from collections.abc import Sequence

from wakeful.errors import InvalidInput
from wakeful.tensors import DTYPES, Buffer, DType, decode_strings


def known(datatype: str, path: str) -> DType:
    dtype = DTYPES.get(datatype)
    if dtype is None:
        raise InvalidInput.field(f"{path}.datatype", "one of " + ", ".join(DTYPES), repr(datatype))
    return dtype


def check(dtype: DType, shape: Sequence[int], data: Buffer, data_path: str, size_path: str) -> None:
    """Raises InvalidInput where the bytes are no tensor of this datatype and shape: at `size_path` if there are too many or too few."""
    count = math.prod(shape)
    if not dtype.itemsize:
        decode_strings(data, count, data_path)
    elif len(data) != count * dtype.itemsize:
        raise InvalidInput.field(size_path, f"{count * dtype.itemsize} for {dtype.name} of shape {list(shape)}", len(data))
    elif dtype.name == "BOOL" and count and max(data) > 1:
        raise InvalidInput.field(data_path, "bytes 0 and 1 for BOOL", max(data))
