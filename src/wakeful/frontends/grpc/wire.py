"""The little of protobuf's wire format that is written by hand, where tensors' bytes would otherwise be copied into a message and out of it again."""

from wakeful.tensors import Buffer

BYTES_FIELD = 2
"""Wire type of strings, bytes and messages."""


def tag(field: int) -> bytes:
    """The head of a field of bytes. Fields from 16 on take more."""
    return bytes([field << 3 | BYTES_FIELD])


def varint(number: int) -> bytes:
    if number < 0x80:
        return _SHORT[number]
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_SHORT = [bytes([number]) for number in range(0x80)]


def field(number: int, data: Buffer) -> bytes:
    return b"".join((tag(number), varint(len(data)), data))


def cut(message: bytes, highest: int) -> list[tuple[int, int, int, int]] | None:
    """The fields of a message that has fields of bytes alone, numbered from 1 to `highest`: number, where it begins, where its data begin and end.

    None for any other message, and for what is none.
    """
    fields: list[tuple[int, int, int, int]] = []
    position, end = 0, len(message)
    try:
        while position < end:
            begin, head = position, message[position]
            number, length = head >> 3, message[position + 1]
            position += 2
            if head & 7 != BYTES_FIELD or not 0 < number <= highest:
                return None
            if length > 0x7F:
                length, shift = length & 0x7F, 7
                while (more := message[position]) > 0x7F and shift < 35:
                    length |= (more & 0x7F) << shift
                    position, shift = position + 1, shift + 7
                length |= more << shift
                position += 1
            fields.append((number, begin, position, position := position + length))
    except IndexError:
        return None
    return fields if position == end else None
