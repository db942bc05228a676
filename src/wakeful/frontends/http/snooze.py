"""SnoozeML's REST bodies. Its clients know 32-bit floats only: the engine casts inputs to what the model declares, and outputs are cast
back here.

Inputs are read as FP64, so that a whole number beyond 2**24 that a person writes by hand reaches an integer input unharmed. NaN and the
infinities, in outputs, are null, which the client reads as NaN.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Literal, TypedDict

import msgspec

from wakeful.errors import InvalidInput
from wakeful.frontends.float32 import as_float32, numeric
from wakeful.frontends.http import numbers
from wakeful.frontends.http.json_body import parse
from wakeful.tensors import Buffer, Tensor

State = Literal["idle", "loading", "ready", "busy"]
Shape = Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)], ...], msgspec.Meta(min_length=1, max_length=64)]


class Input(msgspec.Struct):
    name: str
    shape: Shape
    data: msgspec.Raw


class _Request(msgspec.Struct):
    inputs: Annotated[list[Input], msgspec.Meta(min_length=1)]


_decode_request = msgspec.json.Decoder(_Request).decode


def decode_infer(body: Buffer) -> tuple[Tensor, ...]:
    """The inputs, as FP64 to be cast. Beyond what the client sends, nested data and dimensions of size 0 are taken.

    Raises InvalidInput with the path of the field.
    """
    return tensors_of(parse(_decode_request, body).inputs)


def tensors_of(inputs: Iterable[Input]) -> tuple[Tensor, ...]:
    """The inputs of a request, as FP64. Raises InvalidInput with the path of the field."""
    tensors: list[Tensor] = []
    seen: set[str] = set()
    for index, given in enumerate(inputs):
        path, name = f"inputs[{index}]", given.name
        if not name.strip():
            raise InvalidInput.field(f"{path}.name", "a name", repr(name))
        if name in seen:
            raise InvalidInput.field(f"{path}.name", "a name of its own", f"{name!r} again")
        seen.add(name)
        tensors.append(Tensor(name, "FP64", given.shape, numbers.decode(given.data, "FP64", given.shape, path)))
    return tuple(tensors)


def encode_infer(model: str, outputs: Sequence[Tensor], duration_ms: float) -> bytes:
    """The answer. `duration_ms` is the time in the server. The outputs' data are copied.

    Outputs of strings are left out, as `float32.numeric` has it.
    """
    parts: list[bytes] = []
    lead = _opening(model)
    for name, datatype, shape, data in numeric(outputs):
        parts += (lead, _output(name, shape), numbers.encode(as_float32(data, datatype), "FP32", shape, name))
        lead = b"},"
    parts.append(b'%b],"duration_ms":%b}' % (b"}" if parts else lead, b"%.3f" % duration_ms if math.isfinite(duration_ms) else b"0"))
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _opening(model: str) -> bytes:
    return b'{"model_id":%b,"outputs":[' % msgspec.json.encode(model)


@lru_cache(maxsize=4096)
def _output(name: str, shape: tuple[int, ...]) -> bytes:
    """An entry of `outputs` up to its data."""
    return msgspec.json.encode({"name": name, "shape": shape})[:-1] + b',"data":'


class ModelInfo(TypedDict):
    id: str
    state: State
    onnx_path: str
    idle_timeout_secs: int
    max_batch_size: int
    max_batch_delay_ms: int
    last_accessed_secs_ago: int
    description: str | None
    pinned: bool
    memory_bytes: int


def model_info(
    *,
    id: str,
    state: State,
    onnx_path: str,
    idle_timeout: float,
    max_batch_size: int,
    max_batch_delay: float,
    last_accessed: float | None,
    description: str | None,
    pinned: bool,
    memory_bytes: int | None,
) -> ModelInfo:
    """One model of a listing. Times are seconds; `last_accessed`: how long ago, None: never.

    The client takes whole numbers only and fails on null, so what is not known is 0, and a setting that is not zero does not become zero.
    """
    return ModelInfo(
        id=id,
        state=state,
        onnx_path=onnx_path,
        idle_timeout_secs=math.ceil(idle_timeout),
        max_batch_size=max_batch_size,
        max_batch_delay_ms=math.ceil(round(max_batch_delay * 1000, 6)),
        last_accessed_secs_ago=int(last_accessed or 0),
        description=description,
        pinned=pinned,
        memory_bytes=memory_bytes or 0,
    )
