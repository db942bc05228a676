"""SnoozeML's clients know 32-bit floats only: outputs are cast to them."""

import numpy as np

from wakeful.errors import InvalidInput
from wakeful.tensors import DTYPES, Buffer, widen_bf16


def as_float32(data: Buffer, datatype: str, name: str) -> Buffer:
    """The elements of the output `name` as FP32. Raises InvalidInput for strings."""
    if datatype == "FP32":
        return data
    if datatype == "BYTES":
        raise InvalidInput(f"output {name} holds strings; SnoozeML's API is float32 only, the Open Inference Protocol (/v2) has strings")
    elements = np.frombuffer(data, DTYPES[datatype].numpy)
    if datatype == "BF16":
        return widen_bf16(elements).tobytes()
    with np.errstate(over="ignore"):
        return elements.astype("<f4").tobytes()
