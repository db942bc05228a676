"""The Open Inference Protocol's ModelInfer: messages to requests, and outputs to messages.

A client says the same thing with each request but for the tensors' bytes and the id. So a message is cut into its fields; what remains without
raw contents and id is its head, which is read once and remembered, as heads of HTTP are. Raw contents are views of the message; an answer is
joined from a head that is remembered too and the outputs' bytes (docs/decisions/24-grpc.md).

Decisions where the protocol leaves room: answers carry raw contents, whatever the request carried; extensions that are known and not supported
(shared memory, classification) are refused; parameters of tensors that are not known are ignored, as over REST.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from wakeful.errors import InvalidInput
from wakeful.frontends import raw_data
from wakeful.frontends.grpc import wire
from wakeful.frontends.grpc.messages import message, parse
from wakeful.tensors import Buffer, DType, Tensor, encode_strings

Request, Response = message("inference.ModelInferRequest"), message("inference.ModelInferResponse")

ID, RAW_INPUT = 3, 7
RESPONSE_ID, RAW_OUTPUT = 3, 6
STREAM_ERROR, STREAM_RESPONSE = 1, 2

LONGEST_REMEMBERED, REMEMBERED = 4096, 1024
"""Bytes of a head, and heads."""
MOST_DIMENSIONS = 64
AT_ONCE = 1 << 16
"""Typed elements that are converted in one go, a few milliseconds in which nothing else runs, be it in a thread of its own."""
FINAL = wire.field(4, wire.field(1, b"triton_final_response") + wire.field(2, b"\x08\x01"))
"""Parameter of an answer in a stream: it is the request's last one, as each is here. Whoever asked for it waits for it."""
ASKS_FOR_FINAL = "triton_enable_empty_final_response"

CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents", "FP32": "fp32_contents",
    "FP64": "fp64_contents", "BYTES": "bytes_contents",
}
"""Where elements of a datatype lie; FP16 and BF16 travel as raw contents only."""


class _Input(NamedTuple):
    name: str
    dtype: DType
    shape: tuple[int, ...]
    size: int
    """Bytes of its data; -1: they have to be looked at."""


class Head(NamedTuple):
    """A request but for its id and raw contents."""

    model: str
    version: str | None
    inputs: tuple[_Input, ...]
    typed: tuple[Tensor, ...] | None
    """None: raw contents follow."""
    outputs: tuple[str, ...] | None
    parameters: Mapping[str, Any] | None
    timeout: int | None
    """Microseconds."""


class Infer(NamedTuple):
    """An inference request."""

    head: Head
    id: str
    inputs: tuple[Tensor, ...]
    """Raw contents are views of the message."""


# ── request ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def decode_infer(encoded: bytes) -> Infer:
    """Raises InvalidInput with the path of the field."""
    head, id, raw = _divide(encoded)
    read = _remembered(head) if len(head) <= LONGEST_REMEMBERED else _read(head)
    if read.typed is None:
        return Infer(read, id, _raw_inputs(read.inputs, raw))
    if raw:
        raise InvalidInput.field("raw_input_contents", "none where inputs have contents", f"{len(raw)} of them")
    return Infer(read, id, read.typed)


def _divide(encoded: bytes) -> tuple[bytes, str, list[memoryview]]:
    """Head, id and raw contents."""
    fields = wire.cut(encoded, RAW_INPUT)
    if fields is None:
        return _divide_slowly(encoded)
    view, raw, id = memoryview(encoded), [], ""
    kept: list[bytes] = []
    since = 0
    for number, begin, data, end in fields:
        if number == RAW_INPUT:
            raw.append(view[data:end])
        elif number == ID:
            id = _text(encoded[data:end], "id")
        else:
            continue
        if since < begin:
            kept.append(encoded[since:begin])
        since = end
    if since < len(encoded):
        kept.append(encoded[since:])
    return kept[0] if len(kept) == 1 else b"".join(kept), id, raw


def _divide_slowly(encoded: bytes) -> tuple[bytes, str, list[memoryview]]:
    """Of a message with fields that are not known, or that is none."""
    request = parse(Request, encoded)
    id, raw = request.id, [memoryview(data) for data in request.raw_input_contents]
    request.ClearField("id")
    request.ClearField("raw_input_contents")
    return request.SerializeToString(), id, raw


def _text(encoded: bytes, path: str) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        raise InvalidInput.field(path, "UTF-8", repr(encoded)) from None


def _read(head: bytes) -> Head:
    request = parse(Request, head)
    inputs = [_input(given, f"inputs[{index}]") for index, given in enumerate(request.inputs)]
    _check_names("inputs", [one.name for one in inputs])
    typed = None
    if any(given.HasField("contents") for given in request.inputs):
        typed = tuple(
            _typed(one, given.contents, f"inputs[{index}].contents") for index, (one, given) in enumerate(zip(inputs, request.inputs, strict=True))
        )
    parameters = _values(request.parameters)
    parameters.pop(ASKS_FOR_FINAL, None)
    timeout = parameters.pop("timeout", 0)
    if type(timeout) is not int or not 0 <= timeout < 2**63:
        raise InvalidInput.field("parameters.timeout", "microseconds as a whole number of 63 bits", timeout)
    outputs = _outputs(request.outputs)
    return Head(request.model_name, request.model_version or None, tuple(inputs), typed, outputs, parameters or None, timeout or None)


_remembered = lru_cache(maxsize=REMEMBERED)(_read)


def _input(given: Any, path: str) -> _Input:
    if "shared_memory_region" in given.parameters:
        raise InvalidInput(f"{path}.parameters.shared_memory_region: shared memory is not supported")
    dtype = raw_data.known(given.datatype, path)
    if len(given.shape) > MOST_DIMENSIONS:
        raise InvalidInput.field(f"{path}.shape", f"at most {MOST_DIMENSIONS} dimensions", len(given.shape))
    shape = tuple(given.shape)
    if any(size < 0 for size in shape):
        raise InvalidInput.field(f"{path}.shape", "dimensions of 0 or more", list(shape))
    plain = dtype.itemsize and dtype.name != "BOOL"
    return _Input(given.name, dtype, shape, math.prod(shape) * dtype.itemsize if plain else -1)


def _check_names(path: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise InvalidInput.field(f"{path}[{index}].name", "a name of its own", f"{name!r} again")
        seen.add(name)


def _typed(one: _Input, contents: Any, path: str) -> Tensor:
    where = CONTENTS.get(one.dtype.name)
    if where is None:
        raise InvalidInput(f"{path}: {one.dtype.name} travels in raw_input_contents only")
    if others := [field.name for field, _ in contents.ListFields() if field.name != where]:
        raise InvalidInput.field(path, f"{where} for {one.dtype.name}", others[0])
    elements = getattr(contents, where)
    if len(elements) != math.prod(one.shape):
        raise InvalidInput.field(f"{path}.{where}", f"{math.prod(one.shape)} elements for shape {list(one.shape)}", len(elements))
    if not one.dtype.itemsize:
        return Tensor(one.name, one.dtype.name, one.shape, encode_strings(elements))
    data = np.empty(len(elements), one.dtype.numpy)
    try:
        for start in range(0, len(data), AT_ONCE):
            data[start : start + AT_ONCE] = elements[start : start + AT_ONCE]
    except OverflowError:
        raise InvalidInput(f"{path}.{where}: an element does not fit into {one.dtype.name}") from None
    return Tensor(one.name, one.dtype.name, one.shape, data.tobytes())


def _raw_inputs(inputs: tuple[_Input, ...], raw: list[memoryview]) -> tuple[Tensor, ...]:
    if len(raw) != len(inputs):
        raise InvalidInput.field("raw_input_contents", f"one for each of the {len(inputs)} inputs, or contents in each of them", f"{len(raw)}")
    tensors = []
    for index, ((name, dtype, shape, size), data) in enumerate(zip(inputs, raw, strict=True)):
        if len(data) != size:
            path = f"raw_input_contents[{index}]"
            raw_data.check(dtype, shape, data, path, path)
        tensors.append(tuple.__new__(Tensor, (name, dtype.name, shape, data)))  # half the time of Tensor(...)
    return tuple(tensors)


def _outputs(given: Iterable[Any]) -> tuple[str, ...] | None:
    names: list[str] = []
    for index, output in enumerate(given):
        for extension, what in (("classification", "classification"), ("shared_memory_region", "shared memory")):
            if extension in output.parameters:
                raise InvalidInput(f"outputs[{index}].parameters.{extension}: {what} is not supported")
        names.append(output.name)
    _check_names("outputs", names)
    return tuple(names) or None


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    chosen = ((name, one, one.WhichOneof("parameter_choice")) for name, one in parameters.items())
    return {name: getattr(one, choice) for name, one, choice in chosen if choice}


# ── answer ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_infer(model: str, version: str, id: str, outputs: Sequence[Tensor]) -> bytes:
    """The outputs' data are copied."""
    parts: list[Buffer] = [_until_data(model, version, tuple([output[:3] for output in outputs]))]
    if id:
        parts.append(wire.field(RESPONSE_ID, id.encode()))
    for output in outputs:
        data = output.data
        parts += (_RAW_OUTPUT, wire.varint(len(data)), data)
    return b"".join(parts)


_RAW_OUTPUT = wire.tag(RAW_OUTPUT)


@lru_cache(maxsize=4096)
def _until_data(model: str, version: str, outputs: tuple[tuple[str, str, tuple[int, ...]], ...]) -> bytes:
    response = Response(model_name=model, model_version=version)
    for name, datatype, shape in outputs:
        response.outputs.add(name=name, datatype=datatype, shape=shape)
    encoded: bytes = response.SerializeToString()
    return encoded


def streamed(answer: bytes) -> bytes:
    """An answer as a stream carries it."""
    return wire.field(STREAM_RESPONSE, answer + FINAL)


def streamed_error(text: str, id: str) -> bytes:
    """An error as a stream carries it: the stream goes on. The id says whose error it is."""
    named = wire.field(STREAM_RESPONSE, wire.field(RESPONSE_ID, id.encode()) + FINAL) if id else b""
    return wire.field(STREAM_ERROR, text.encode()) + named
