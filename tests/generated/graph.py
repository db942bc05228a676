"""A graph that grows operator by operator, and knows of each value how far it may be rounded."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from tests.onnx_models import ELEMENT_TYPES

Size = int | str | None
Shape = tuple[Size, ...]

UNIT = 2.0**-23
"""Rounding of one FP32 operation, generously."""
EXACT_LIMIT = 2.0**20
"""Whole numbers below it stay exact through a sum of a few of them, in whatever order."""
MANY = 32
"""More rows than any run has."""


@dataclass(frozen=True)
class Value:
    """Axis 0 of `shape` is "N" where it is the number of rows, "?" where it is another number that depends on the input."""

    name: str
    shape: Shape
    datatype: str = "FP32"
    bound: float = 8.0
    """No element is larger."""
    error: float = 0.0
    """How far two runs may differ that round in different order. 0: whole numbers, the same to the bit."""

    @property
    def exact(self) -> bool:
        return self.error == 0.0

    @property
    def width(self) -> int:
        size = self.shape[1]
        assert isinstance(size, int)
        return size


class Graph:
    """`independent` until an operator is added that lets rows, or their number, influence each other."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.independent = True
        self.matrices: list[Value] = []
        """FP32 values [rows, width], which operators take and give."""
        self.others: list[Value] = []
        """What only an output can be made of."""
        self.inputs: list[Value] = []
        self.optional: list[str] = []
        self.weights: list[TensorProto] = []
        self.nodes: list[NodeProto] = []

    # ── building ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def input(self, name: str, shape: Shape, datatype: str = "FP32", bound: float = 8.0) -> Value:
        value = Value(name, shape, datatype, bound)
        self.inputs.append(value)
        return value

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def node(self, op: str, inputs: Sequence[Value | str], *, outputs: int = 1, **attributes: Any) -> str:
        """Add an operator; returns the name of its last output."""
        names = [f"v{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, [one if isinstance(one, str) else one.name for one in inputs], names, **attributes))
        return names[-1]

    def matrix(self, name: str, shape: Shape, *, bound: float, error: float = 0.0) -> Value:
        """A result that further operators may take. Large ones are cut off, so that whole numbers stay exact."""
        if bound > EXACT_LIMIT:
            bound = 64.0
            name = self.node("Clip", [name, self.constant(-bound), self.constant(bound)])
        value = Value(name, shape, "FP32", bound, error)
        self.matrices.append(value)
        return value

    def other(self, name: str, shape: Shape, datatype: str = "FP32", *, bound: float = 8.0, error: float = 0.0) -> None:
        self.others.append(Value(name, shape, datatype, bound, error))

    def whole(self, *shape: int, most: int = 3) -> NDArray[np.float32]:
        """Small whole numbers as weights."""
        count = int(np.prod(shape))
        return np.array([self.rng.randint(-most, most) for _ in range(count)], np.float32).reshape(shape)

    # ── describing ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def values(self) -> list[Value]:
        return self.matrices + self.others


def info(name: str, datatype: str, shape: Shape) -> ValueInfoProto:
    element = TensorProto.DataType.Value(ELEMENT_TYPES[datatype].upper())
    return helper.make_tensor_value_info(name, element, list(shape))
