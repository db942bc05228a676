"""SnoozeML's Infer: messages to requests, and outputs to messages. Its clients know 32-bit floats only: the engine casts inputs to what the model
declares, and outputs are cast back here. NaN and the infinities travel as they are."""

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from wakeful.errors import InvalidInput
from wakeful.frontends import raw_data
from wakeful.frontends.float32 import as_float32, numeric
from wakeful.frontends.grpc import wire
from wakeful.frontends.grpc.messages import message, parse
from wakeful.tensors import DTYPES, Buffer, Tensor

Request, TensorData = message("snoozeml.v1.ModelInferRequest"), message("snoozeml.v1.TensorData")

DATA_TYPES = TensorData.DESCRIPTOR.fields_by_name["data_type"].enum_type
FP32 = DATA_TYPES.values_by_name["DATA_TYPE_FP32"].number
MODEL_ID, OUTPUTS, RAW_DATA = 1, 2, 4
DURATION = struct.Struct("<Bd")
DURATION_HEAD = 3 << 3 | 1
MOST_DIMENSIONS = 64


class Infer(NamedTuple):
    model: str
    inputs: tuple[Tensor, ...]
    timeout: int | None
    """Milliseconds."""


def decode_infer(encoded: bytes) -> Infer:
    """`parameters` have no meaning for inference. Raises InvalidInput with the path of the field."""
    request = parse(Request, encoded)
    timeout = request.client_timeout_ms if request.HasField("client_timeout_ms") else None
    if timeout == 0:
        raise InvalidInput.field("client_timeout_ms", "milliseconds, 1 or more", 0)
    return Infer(request.model_id, inputs_of(request), timeout)


def inputs_of(request: Any) -> tuple[Tensor, ...]:
    """Raises InvalidInput with the path of the field."""
    if not request.inputs:
        raise InvalidInput.field("inputs", "at least one", "none")
    tensors: list[Tensor] = []
    seen: set[str] = set()
    for index, given in enumerate(request.inputs):
        path, name = f"inputs[{index}]", given.name
        if not name.strip():
            raise InvalidInput.field(f"{path}.name", "a name", repr(name))
        if name in seen:
            raise InvalidInput.field(f"{path}.name", "a name of its own", f"{name!r} again")
        seen.add(name)
        if given.data_type != FP32:
            known = DATA_TYPES.values_by_number.get(given.data_type)
            raise InvalidInput.field(f"{path}.data_type", "DATA_TYPE_FP32", known.name if known else given.data_type)
        shape = tuple(given.shape[: MOST_DIMENSIONS + 1])
        if len(shape) > MOST_DIMENSIONS or any(size < 0 for size in shape):
            raise InvalidInput.field(f"{path}.shape", f"at most {MOST_DIMENSIONS} dimensions of 0 or more", list(shape))
        data = given.raw_data
        raw_data.check(DTYPES["FP32"], shape, data, f"{path}.raw_data", f"{path}.raw_data")
        tensors.append(Tensor(name, "FP32", shape, data))
    return tuple(tensors)


def encode_infer(model: str, outputs: Sequence[Tensor], duration_ms: float) -> bytes:
    """The answer. `duration_ms` is the time in the server. The outputs' data are copied.

    Outputs of strings are left out, as `float32.numeric` has it.
    """
    parts: list[Buffer] = [wire.field(MODEL_ID, model.encode())]
    for name, datatype, shape, given in numeric(outputs):
        data = as_float32(given, datatype)
        head = _until_data(name, shape)
        size = wire.varint(len(data))
        parts += (_OUTPUTS, wire.varint(len(head) + len(_RAW_DATA) + len(size) + len(data)), head, _RAW_DATA, size, data)
    parts.append(DURATION.pack(DURATION_HEAD, duration_ms if math.isfinite(duration_ms) else 0.0))
    return b"".join(parts)


_OUTPUTS, _RAW_DATA = wire.tag(OUTPUTS), wire.tag(RAW_DATA)


@lru_cache(maxsize=4096)
def _until_data(name: str, shape: tuple[int, ...]) -> bytes:
    encoded: bytes = TensorData(name=name, shape=shape, data_type=FP32).SerializeToString()
    return encoded
