"""A tensor's elements as a JSON array, to bytes and back.

Two ways in, chosen by measurement: short arrays by msgspec and `struct` (below 1 us for a few numbers), long ones by simdjson into a NumPy
buffer (half the time of any way over Python objects). What the long way does not take (strings, booleans, integers beyond 64 bits, all
errors) goes the short way after all. Neither rounds an integer on its way to an integer datatype.

Taken strictly: integers without fraction or exponent and within the datatype's range; true, false, 0 and 1 for BOOL; any finite number that
the datatype can hold for FP16, FP32 and FP64; text for BYTES. BF16 has no JSON form. Data may be flat, or nested exactly as the shape says.

Given out: the shortest decimal that reads back as the same value. NaN and the infinities, which JSON has no numbers for, are null, so that
the body is always strict JSON with one element for each of the shape.
"""

import math
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import orjson
import simdjson

from wakeful.errors import ExecutionFailed, InvalidInput
from wakeful.frontends.http.json_body import explain
from wakeful.tensors import DTYPES, Buffer, decode_strings, encode_strings, widen_bf16

_dumps, _NUMPY = orjson.dumps, orjson.OPT_SERIALIZE_NUMPY
_array = np.frombuffer

LONG = 6144
"""Bytes of JSON from which simdjson is faster."""

PIECE = 256 << 10
"""Bytes of a flat array that are parsed at a time: what stays in the processor's cache takes half the time, and a thread that decodes lets others
run in between."""

ELEMENTS = 64 << 10
"""Elements that are written at a time, for the same reason."""

KEPT = 4 << 20
"""Bytes of JSON up to which one parser is used again; it keeps buffers of several times the longest text that it has seen."""


class _Parsers(threading.local):
    """One for each thread: what it has parsed lies in the parser."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser()


_own = _Parsers()

Values = list[Any]
Wide = Literal["d", "i", "u"]


@dataclass(frozen=True, slots=True)
class Codec:
    element: Any
    """msgspec's type of one element."""
    code: str
    """`struct`'s letter."""
    wide: Wide | None
    """simdjson's buffer that holds any element exactly."""
    dtype: np.dtype[Any]
    decode: Callable[[Buffer], Values]


def _codec(name: str, element: Any, code: str, wide: Wide | None) -> Codec:
    return Codec(element, code, wide, np.dtype(DTYPES[name].numpy), msgspec.json.Decoder(list[element]).decode)


def _integer(low: int, high: int | None) -> Any:
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


CODECS: dict[str, Codec] = {
    "BOOL": _codec("BOOL", bool | _integer(0, 1), "?", None),
    "UINT8": _codec("UINT8", _integer(0, 2**8 - 1), "B", "u"),
    "UINT16": _codec("UINT16", _integer(0, 2**16 - 1), "H", "u"),
    "UINT32": _codec("UINT32", _integer(0, 2**32 - 1), "I", "u"),
    "UINT64": _codec("UINT64", _integer(0, None), "Q", "u"),  # msgspec knows no bound beyond int64: `struct` refuses the rest
    "INT8": _codec("INT8", _integer(-(2**7), 2**7 - 1), "b", "i"),
    "INT16": _codec("INT16", _integer(-(2**15), 2**15 - 1), "h", "i"),
    "INT32": _codec("INT32", _integer(-(2**31), 2**31 - 1), "i", "i"),
    "INT64": _codec("INT64", _integer(-(2**63), 2**63 - 1), "q", "i"),
    "FP16": _codec("FP16", float, "e", "d"),
    "FP32": _codec("FP32", float, "f", "d"),
    "FP64": _codec("FP64", float, "d", "d"),
    "BYTES": _codec("BYTES", str, "", None),
}


# ── JSON to bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def decode(raw: Buffer | msgspec.Raw, datatype: str, shape: Sequence[int], path: str) -> bytes:
    """The bytes of a tensor whose elements are the JSON text `raw`. `path` is where the request has the tensor.

    Raises InvalidInput that names the tensor's `data`.
    """
    codec = CODECS.get(datatype)
    if codec is None:
        raise InvalidInput.field(f"{path}.data", f"binary data, as {datatype} has no JSON form", "JSON")
    count = math.prod(shape)
    if len(raw) >= LONG and codec.wide and (packed := _decode_long(bytes(raw), codec, codec.wide, shape, count)) is not None:
        return packed
    try:
        values = codec.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        values = _decode_nested(bytes(raw), datatype, shape, f"{path}.data")
    if len(values) != count:
        raise InvalidInput.field(f"{path}.data", f"{count} elements for shape {list(shape)}", len(values))
    if datatype == "BYTES":
        return encode_strings([value.encode() for value in values])
    try:
        return _packer(codec.code, count)(*values)
    except (OverflowError, struct.error):
        raise _out_of_range(values, datatype, codec.code, f"{path}.data") from None


@lru_cache(maxsize=1024)
def _packer(code: str, count: int) -> Callable[..., bytes]:
    return struct.Struct(f"<{count}{code}").pack


def _out_of_range(values: Values, datatype: str, code: str, field: str) -> InvalidInput:
    for index, value in enumerate(values):
        try:
            struct.pack(f"<{code}", value)
        except (OverflowError, struct.error):
            return InvalidInput.field(f"{field}[{index}]", f"a number in the range of {datatype}", f"{value:.6g}")
    raise AssertionError("every element fits alone")


def _decode_nested(raw: bytes, datatype: str, shape: Sequence[int], field: str) -> Values:
    """Elements of arrays in arrays, flattened. Also where flat data is wrong: the error is explained here."""
    nested = raw.lstrip()[1:].lstrip()[:1] == b"["
    try:
        values = _nested_decoder(datatype, len(shape) if nested else 1)(raw)
    except msgspec.DecodeError as error:
        raise explain(error, field) from None
    rows = [values]
    for axis, size in enumerate(shape):
        for row in rows:
            if len(row) != size:
                raise InvalidInput.field(field, f"{size} elements along axis {axis} of shape {list(shape)}", len(row))
        rows = list(chain.from_iterable(rows))
    return rows


@lru_cache(maxsize=256)
def _nested_decoder(datatype: str, depth: int) -> Callable[[bytes], Values]:
    nested: Any = CODECS[datatype].element
    for _ in range(max(depth, 1)):
        nested = list[nested]
    return msgspec.json.Decoder(nested).decode


def _decode_long(raw: bytes, codec: Codec, kind: Wide, shape: Sequence[int], count: int) -> bytes | None:
    """A long array of numbers, or None where it is not plainly right; the other way then finds out what is wrong."""
    flat = raw.find(b"[", raw.find(b"[") + 1) < 0
    try:
        parts = [_narrow(_parse_long(piece, kind), codec, kind) for piece in (_pieces(raw) if flat and len(raw) > PIECE else (raw,))]
    except (ValueError, TypeError, RuntimeError):
        return None
    packed = parts[0] if len(parts) == 1 else b"".join(parts)
    if not count or len(packed) != count * codec.dtype.itemsize:
        return None
    return packed if flat or raw.translate(None, _NOT_STRUCTURE) == _structure(shape) else None


def _pieces(raw: bytes) -> Iterator[bytes]:
    """A flat array as several, cut at commas. A comma inside a string or an object leaves pieces that are no arrays."""
    if raw[:1] != b"[" or raw[-1:] != b"]":
        raise TypeError
    start, end = 1, len(raw) - 1
    while start <= end:
        comma = raw.find(b",", start + PIECE, end)
        stop = end if comma < 0 else comma
        yield b"[%b]" % raw[start:stop]
        start = stop + 1


def _parse_long(raw: bytes, kind: Wide) -> "np.ndarray[Any, Any]":
    parser = _own.parser if len(raw) <= KEPT else simdjson.Parser()
    array = parser.parse(raw)
    if not isinstance(array, simdjson.Array):
        raise TypeError
    return np.frombuffer(array.as_buffer(of_type=kind), _WIDE[kind])


def _narrow(wide: "np.ndarray[Any, Any]", codec: Codec, kind: Wide) -> bytes:
    """Raises ValueError where an element is out of range."""
    if codec.dtype == wide.dtype:
        return wide.tobytes()
    if kind == "d":
        with np.errstate(over="ignore"):
            narrow = wide.astype(codec.dtype)
        good = np.isfinite(narrow).all()
    else:
        bounds = np.iinfo(codec.dtype)
        narrow = wide.astype(codec.dtype)
        good = not len(wide) or (bounds.min <= wide.min() and wide.max() <= bounds.max)
    if not good:
        raise ValueError
    return narrow.tobytes()


_WIDE = {"d": np.dtype("<f8"), "i": np.dtype("<i8"), "u": np.dtype("<u8")}
_NOT_STRUCTURE = b"0123456789+-.eE \t\r\n"
"""What remains of an array of numbers without these are its brackets and commas."""


def _structure(shape: Sequence[int]) -> bytes:
    text = b""
    for size in reversed(shape):
        text = b"[" + b",".join([text] * size) + b"]"
    return text


# ── bytes to JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode(data: Buffer, datatype: str, shape: Sequence[int], name: str) -> bytes:
    """The elements as a flat JSON array. Raises ExecutionFailed where output `name` holds strings that are not text."""
    codec = CODECS.get(datatype)
    if codec is None:  # BF16
        return _dump(widen_bf16(_array(data, "<u2")))
    if datatype != "BYTES":
        return _dump(_array(data, codec.dtype))
    try:
        return _dump([element.decode() for element in decode_strings(data, math.prod(shape))])
    except UnicodeDecodeError:
        raise ExecutionFailed(f"output {name} holds bytes that are not UTF-8 text; ask for it as binary data") from None


def _dump(elements: "np.ndarray[Any, Any] | list[str]") -> bytes:
    """Piece by piece: a thread that encodes lets others run in between."""
    if len(elements) <= ELEMENTS:
        return _dumps(elements, None, _NUMPY)
    pieces = [_dumps(elements[start : start + ELEMENTS], None, _NUMPY)[1:-1] for start in range(0, len(elements), ELEMENTS)]
    return b"[%b]" % b",".join(pieces)
