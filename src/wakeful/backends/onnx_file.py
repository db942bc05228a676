"""The little of the ONNX file format (Protocol Buffers' wire format) that must be edited by hand.

The `onnx` package could do this; it is not worth having in every installation for a few fields.
"""

import json
from collections.abc import Collection, Iterator
from pathlib import Path

COLUMNS = "wakeful.columns"
"""Metadata of an edited model: what the columns of its outputs stand for, as JSON."""

_GRAPH, _OPSET, _METADATA = 7, 8, 14  # in ModelProto
_DOMAIN, _VERSION = 1, 2  # in OperatorSetIdProto
_KEY, _VALUE = 1, 2  # in StringStringEntryProto
_NODE, _INPUT, _OUTPUT = 1, 11, 12  # in GraphProto
_NAME, _TYPE = 1, 2  # in ValueInfoProto
_FROM, _TO, _OPERATOR, _ATTRIBUTE = 1, 2, 4, 5  # in NodeProto
_ATTRIBUTE_NAME, _INTEGERS, _STRINGS = 1, 8, 9  # in AttributeProto
_TENSOR, _ELEMENT, _SHAPE, _DIMENSION, _SIZE = 1, 1, 2, 1, 1  # in TypeProto and below
_FLOAT = 1  # TensorProto.FLOAT

_LABELS = (b"classlabels_strings", b"classlabels_int64s")
_IDENTITY_OPSET = 13


def keep_inputs(file: Path, names: Collection[str]) -> None:
    """Take all graph inputs but those of these names out of a model, in place.

    Before IR version 4 each weight was also listed as an input. ONNX Runtime saves an optimised model of that age with the whole list, though
    optimising has done away with many of the weights: what is left of them would be inputs that callers had to give.
    """
    model = file.read_bytes()
    kept = {name.encode() for name in names}
    edited = b"".join(_field(_GRAPH, _without(kept, body)) if number == _GRAPH else raw for number, raw, body in _fields(model))
    if edited != model:
        file.write_bytes(edited)


def without_maps(model: bytes) -> bytes:
    """A model whose ZipMap nodes give what they are given: FP32 [N, classes], a column a class, instead of a map from class to probability a row.

    The labels, in the order of the columns, are noted in the model's metadata. Raises ValueError if the file is malformed.
    """
    columns: dict[str, list[str]] = {}
    parts = []
    for number, raw, body in _fields(model):
        parts.append(_field(_GRAPH, _unmapped(body, columns)) if number == _GRAPH else raw)
    if not any(number == _OPSET and _first(body, _DOMAIN) == b"" for number, _, body in _fields(model)):
        parts.append(_field(_OPSET, _number(_VERSION, _IDENTITY_OPSET)))
    note = _field(_KEY, COLUMNS.encode()) + _field(_VALUE, json.dumps(columns).encode())
    return b"".join([*parts, _field(_METADATA, note)])


def _unmapped(graph: bytes, columns: dict[str, list[str]]) -> bytes:
    """The graph without maps. Adds to `columns` the labels of each output that was one."""
    parts = list(_fields(graph))
    outputs = {_name(body) for number, _, body in parts if number == _OUTPUT}
    for at, (number, _, body) in enumerate(parts):
        if number == _NODE and _first(body, _OPERATOR) == b"ZipMap" and (output := _first(body, _TO)) in outputs:
            columns[output.decode()] = _labels(body)
            same = _field(_FROM, _first(body, _FROM)) + _field(_TO, output) + _field(_OPERATOR, b"Identity")
            parts[at] = number, _field(_NODE, same), same
    return b"".join(
        _field(_OUTPUT, _matrix(name, len(columns[name.decode()])))
        if number == _OUTPUT and (name := _name(body)).decode() in columns else raw
        for number, raw, body in parts
    )


def _labels(node: bytes) -> list[str]:
    """What a ZipMap calls the columns of its input."""
    labels: list[str] = []
    for number, _, attribute in _fields(node):
        if number == _ATTRIBUTE and _first(attribute, _ATTRIBUTE_NAME) in _LABELS:
            for kind, _, value in _fields(attribute):
                if kind == _STRINGS:
                    labels.append(value.decode())
                elif kind == _INTEGERS:  # one by one, or all in one piece
                    labels += map(str, _integers(value))
    return labels


def _matrix(name: bytes, columns: int) -> bytes:
    """An output FP32 [N, columns]."""
    shape = _field(_DIMENSION, b"") + _field(_DIMENSION, _number(_SIZE, columns))
    return _field(_NAME, name) + _field(_TYPE, _field(_TENSOR, _number(_ELEMENT, _FLOAT) + _field(_SHAPE, shape)))


def _first(message: bytes, wanted: int) -> bytes:
    """The content of a field; empty where it is absent."""
    return next((body for number, _, body in _fields(message) if number == wanted), b"")


def _integers(packed: bytes) -> Iterator[int]:
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield value - (1 << 64) if value >> 63 else value


def _without(kept: Collection[bytes], graph: bytes) -> bytes:
    return b"".join(raw for number, raw, body in _fields(graph) if number != _INPUT or _name(body) in kept)


def _name(value_info: bytes) -> bytes:
    return _first(value_info, _NAME)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each field of a message: its number, all its bytes, and its content where it has a length. Raises ValueError if it is malformed."""
    at = 0
    while at < len(message):
        tag, start = _varint(message, at)
        match tag & 7:
            case 0:  # a number of variable length
                _, end = _varint(message, start)
            case 1:
                end = start + 8
            case 2:  # a length and as many bytes
                size, start = _varint(message, start)
                end = start + size
            case 5:
                end = start + 4
            case kind:
                raise ValueError(f"wire type {kind} is unknown")
        if end > len(message):
            raise ValueError("the message is cut short")
        yield tag >> 3, message[at:end], message[start:end]
        at = end


def _field(number: int, body: bytes) -> bytes:
    return _encoded(number << 3 | 2) + _encoded(len(body)) + body


def _number(number: int, value: int) -> bytes:
    return _encoded(number << 3) + _encoded(value)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("the message is cut short")


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
