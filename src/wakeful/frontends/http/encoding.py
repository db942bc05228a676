"""Content encodings of request bodies."""

import zlib

from wakeful.errors import InvalidInput, TooLarge
from wakeful.frontends.http.errors import UnsupportedMedia
from wakeful.telemetry.units import show_bytes
from wakeful.tensors import Buffer

ENCODINGS = ("gzip", "deflate")
MEMBERS = 16
"""Most members of one gzip body: each costs a copy of all that follow it."""


def inflate(body: Buffer, encoding: str, limit: int) -> Buffer:
    """Undo gzip or deflate; never more than `limit` bytes. Raises UnsupportedMedia, InvalidInput or TooLarge."""
    name = encoding.lower()
    if name == "identity":
        return body
    if name not in ENCODINGS:
        raise UnsupportedMedia(f"content-encoding {encoding!r} is not supported, only gzip and deflate", ENCODINGS)
    members: list[bytes] = []
    left = limit
    rest = body
    try:
        while rest:
            if len(members) == MEMBERS:
                raise InvalidInput(f"the {name} body has more than {MEMBERS} members")
            machine = zlib.decompressobj(zlib.MAX_WBITS | 32)  # tells gzip and zlib apart by their headers
            member = machine.decompress(rest, left + 1)
            if len(member) > left:
                raise TooLarge(f"the inflated body is over the limit of {show_bytes(limit)} (max_body)")
            if not machine.eof:
                raise InvalidInput(f"the {name} body is not complete")
            members.append(member)
            left -= len(member)
            rest = machine.unused_data
    except zlib.error as error:
        raise InvalidInput(f"the body is not valid {name}: {error}") from None
    return members[0] if len(members) == 1 else b"".join(members)
