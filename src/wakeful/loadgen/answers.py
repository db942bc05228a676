"""HTTP/1.1 answers: where one ends, its status, and whether the connection stays open. Pure; fed with whatever `recv` returned."""

import re
from typing import NamedTuple

END = b"\r\n\r\n"
CHUNKED, UNTIL_CLOSED = -1, -2
"""In place of a length."""
LONGEST_HEAD = 1 << 16
KEPT = 2000
"""Bytes of a body that are kept for a message."""

_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: |$|\r)")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*(?=\r\n|$)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked", re.IGNORECASE)
_CONNECTION = re.compile(rb"\r\nconnection:[ \t]*([^\r]*)", re.IGNORECASE)
_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r?$")


class Malformed(Exception):
    """This is no HTTP/1.1 answer."""


class Head(NamedTuple):
    status: int
    length: int
    """Bytes of the body, or CHUNKED or UNTIL_CLOSED."""
    stays: bool
    """The connection stays open."""


def parse_head(head: bytes) -> Head:
    """Read a head, without the empty line that ends it."""
    first = _STATUS.match(head)
    if first is None:
        raise Malformed(f"the answer begins with {head[:40]!r}, which is not HTTP/1.1")
    status = int(first[2])
    connection = _CONNECTION.search(head)
    words = connection[1].lower() if connection else b""
    stays = b"close" not in words and (first[1] == b"1" or b"keep-alive" in words)
    if status < 200 or status in (204, 304):
        return Head(status, 0, stays)
    if _CHUNKED.search(head):
        return Head(status, CHUNKED, stays)
    length = _LENGTH.search(head)
    return Head(status, int(length[1]), stays) if length else Head(status, UNTIL_CLOSED, False)


class Answer:
    """One answer as it comes in. Of its body only the beginning is kept."""

    __slots__ = ("_line", "_missing", "_trailer", "body", "head", "surplus")

    def __init__(self) -> None:
        self.head: Head | None = None
        self.body = bytearray()
        self.surplus = False
        """More came than the answer has: the connection is out of step."""
        self._line = bytearray()
        """A head, or a line between chunks, that is not whole yet."""
        self._missing = 0
        """Bytes until the end of the body, or of the chunk and its line end."""
        self._trailer = False

    def feed(self, data: bytes) -> bool:
        """Take what was received; True when the answer is whole."""
        at = 0
        if self.head is None:
            self._line += data
            while self.head is None:
                end = self._line.find(END)
                if end < 0:
                    if len(self._line) > LONGEST_HEAD:
                        raise Malformed(f"the answer's head does not end within {LONGEST_HEAD} bytes")
                    return False
                head = parse_head(bytes(self._line[:end]))
                data, at = bytes(self._line[end + 4 :]), 0
                self._line = bytearray(data) if head.status < 200 else bytearray()
                self.head = None if head.status < 200 else head  # 1xx: the answer itself is still to come
            self._missing = max(self.head.length, 0)
        if self.head.length == CHUNKED:
            return self._chunks(data)
        self._keep(data, at, len(data))
        if self.head.length == UNTIL_CLOSED:
            return False
        self._missing -= len(data)
        self.surplus = self._missing < 0
        return self._missing <= 0

    def begun(self) -> bool:
        """Something of it has come."""
        return self.head is not None or bool(self._line)

    def closed(self) -> bool:
        """The connection has ended: was that the end of the answer?"""
        return self.head is not None and self.head.length == UNTIL_CLOSED

    def _chunks(self, data: bytes) -> bool:
        at = 0
        while at < len(data):
            if self._missing:
                end = min(at + self._missing, len(data))
                self._keep(data, at, min(end, at + self._missing - 2))
                self._missing -= end - at
                at = end
                continue
            end = data.find(b"\n", at)
            self._line += data[at : end + 1 if end >= 0 else len(data)]
            if len(self._line) > LONGEST_HEAD:
                raise Malformed("a chunk's size, or the trailer, is too long")
            if end < 0:
                return False
            at, line = end + 1, bytes(self._line[:-1])
            self._line.clear()
            if self._trailer:
                if line in (b"\r", b""):
                    self.surplus = at < len(data)
                    return True
                continue
            size = _SIZE.match(line)
            if size is None:
                raise Malformed(f"{line[:40]!r} is not the size of a chunk")
            self._missing = int(size[1], 16) + 2
            if self._missing == 2:
                self._missing, self._trailer = 0, True
        return False

    def _keep(self, data: bytes, begin: int, end: int) -> None:
        if end > begin and len(self.body) < KEPT:
            self.body += data[begin : min(end, begin + KEPT - len(self.body))]
