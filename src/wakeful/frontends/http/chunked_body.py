"""A body whose length is told piece by piece (transfer-encoding: chunked)."""

import re
from typing import Literal

from wakeful.errors import InvalidInput, TooLarge
from wakeful.telemetry.units import show_bytes

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class ChunkedBody:
    """Decodes a chunked body piece by piece, each byte looked at once however it is cut. `feed` returns what follows the body once `body`
    is complete, and None before. What has come of the body may be taken away meanwhile."""

    LINE_LIMIT = 4096
    TRAILER_LIMIT = 32 * 1024

    def __init__(self, limit: int, setting: str) -> None:
        """The limit in bytes, and the setting that says so."""
        self.body = bytearray()
        self._begun = 0
        """Bytes of all chunks so far, of which not all may have come."""
        self._limit, self._setting = limit, setting
        self._line = b""
        """The beginning of a line whose end has not come."""
        self._chunk_left = 0
        self._trailers = 0
        self._expected: Literal["size", "data", "end of data", "trailer"] = "size"

    def feed(self, data: bytes) -> bytes | None:
        """Raises InvalidInput for a malformed body, TooLarge as soon as one says that it exceeds the limit."""
        if self._line:
            data, self._line = self._line + data, b""
        at = 0
        while True:
            if self._expected == "data":
                piece = data[at : at + self._chunk_left]
                self.body += piece
                at += len(piece)
                self._chunk_left -= len(piece)
                if self._chunk_left:
                    return None
                self._expected = "end of data"
            end = data.find(b"\r\n", at)
            if (len(data) if end < 0 else end) - at > self.LINE_LIMIT:
                raise InvalidInput("chunked body: a line is too long")
            if end < 0:
                self._line = data[at:]
                return None
            line, at = data[at:end], end + 2
            if self._expected == "size":
                self._begin_chunk(line)
            elif self._expected == "end of data":
                if line:
                    raise InvalidInput.field("chunked body", "an empty line after a chunk", repr(line[:40]))
                self._expected = "size"
            elif line:
                self._skip_trailer(line)
            else:
                return data[at:]

    def _begin_chunk(self, line: bytes) -> None:
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise InvalidInput.field("chunked body", "a chunk size in hexadecimal", repr(line[:40]))
        self._chunk_left = int(match[1], 16)
        self._begun += self._chunk_left
        if self._begun > self._limit:
            raise TooLarge(f"the body is over the limit of {show_bytes(self._limit)} ({self._setting})")
        self._expected = "data" if self._chunk_left else "trailer"

    def _skip_trailer(self, line: bytes) -> None:
        self._trailers += len(line)
        if self._trailers > self.TRAILER_LIMIT:
            raise InvalidInput("chunked body: its trailers are too long")
