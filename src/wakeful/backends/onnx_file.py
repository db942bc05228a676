"""The little of the ONNX file format (Protocol Buffers' wire format) that must be edited by hand.

The `onnx` package could do this; it is not worth having in every installation for one repeated field.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

_GRAPH = 7  # in ModelProto
_INPUT = 11  # in GraphProto
_NAME = 1  # in ValueInfoProto


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


def _without(kept: Collection[bytes], graph: bytes) -> bytes:
    return b"".join(raw for number, raw, body in _fields(graph) if number != _INPUT or _name(body) in kept)


def _name(value_info: bytes) -> bytes:
    return next((body for number, _, body in _fields(value_info) if number == _NAME), b"")


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
