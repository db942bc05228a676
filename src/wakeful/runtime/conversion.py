"""What the command `convert` and the process that converts say to each other, one JSON object a line."""

from typing import Literal

import msgspec

Family = Literal["scikit-learn", "XGBoost", "LightGBM"]


class Input(msgspec.Struct, frozen=True):
    """An input of the result: FP32, FP64, INT64 or BYTES of so many columns."""

    name: str
    datatype: str
    columns: int = 1


class Order(msgspec.Struct, frozen=True):
    source: str
    family: Family | None
    """None: a pickle, which tells only when it is open."""
    output: str
    """A path in a directory of its own."""
    inputs: tuple[Input, ...]
    """Empty: one, called `input`, FP32, as wide as the model takes."""
    opset: int | None
    memory: int
    """Bytes that the process may have."""


class Step(msgspec.Struct, frozen=True, tag="step"):
    text: str


class Converted(msgspec.Struct, frozen=True, tag="converted"):
    what: str
    """Of what the ONNX file was made."""
    inputs: list[str]
    outputs: list[str]
    difference: float | None
    """Largest one between the answers of the two, on made-up rows; None where they could not be compared."""
    remark: str
    """Why not, or how many labels differ; empty where there is nothing to say."""
    kept: tuple[str, ...]
    """What the process could not give up."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    reason: str
