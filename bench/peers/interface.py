"""What a model takes and gives, read from its file: configurations of peers name it, and a first request is made from it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.models import DATATYPES

FREE = -1


class Port(NamedTuple):
    """An input or output. `dims` without the batch axis; -1 where any size will do."""

    name: str
    datatype: str
    dims: tuple[int, ...]


class Interface(NamedTuple):
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def interface(path: Path) -> Interface:
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    return Interface(
        tuple(_port(value) for value in graph.input if value.name not in constants),
        tuple(_port(value) for value in graph.output),
    )


def _port(value: Any) -> Port:
    from onnx import helper

    tensor = value.type.tensor_type
    datatype = DATATYPES[np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))]
    return Port(value.name, datatype, tuple(axis.dim_value or FREE for axis in tensor.shape.dim[1:]))


def zeros(inputs: Sequence[Port]) -> dict[str, Any]:
    """The body of a request of one row of zeros, each free axis 1."""
    def tensor(port: Port) -> dict[str, Any]:
        shape = [1, *(1 if size == FREE else size for size in port.dims)]
        zero = 0.0 if port.datatype.startswith("FP") else 0
        return {"name": port.name, "shape": shape, "datatype": port.datatype, "data": [zero] * math.prod(shape)}

    return {"inputs": [tensor(port) for port in inputs]}
