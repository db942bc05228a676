"""SnoozeML's clients know 32-bit floats only: outputs are cast to them."""

from collections.abc import Sequence

import numpy as np

from wakeful.errors import InvalidInput
from wakeful.tensors import DTYPES, Buffer, Tensor, widen_bf16


def numeric(outputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """The outputs that can be cast. Those of strings are left out where there are others: a classifier's labels, which its probabilities stand for.

    Raises InvalidInput where all hold strings.
    """
    numbers = [output for output in outputs if output.datatype != "BYTES"]
    if outputs and not numbers:
        names = ", ".join(output.name for output in outputs)
        raise InvalidInput(f"output {names} holds strings; SnoozeML's API is float32 only, the Open Inference Protocol (/v2) has strings")
    return numbers


def as_float32(data: Buffer, datatype: str) -> Buffer:
    """The elements of an output of numbers as FP32."""
    if datatype == "FP32":
        return data
    elements = np.frombuffer(data, DTYPES[datatype].numpy)
    if datatype == "BF16":
        return widen_bf16(elements).tobytes()
    with np.errstate(over="ignore"):
        return elements.astype("<f4").tobytes()
