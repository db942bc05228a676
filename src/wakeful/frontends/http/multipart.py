"""A form (multipart/form-data, RFC 7578), read piece by piece: a part of any size is handed on as it comes and never held.

Strict where leniency would have two readings: every part has a name, nothing but line ends stands before the first or behind the last delimiter, and
a body that ends before its last delimiter is no form.
"""

import re
from typing import Literal, Protocol

from wakeful.errors import InvalidInput
from wakeful.frontends.http.errors import UnsupportedMedia

_KIND = re.compile(r"multipart/form-data\s*(;.*)?", re.IGNORECASE | re.DOTALL)
_BOUNDARY = re.compile(r";\s*boundary=(?:\"([0-9A-Za-z'()+_,./:=? -]{1,70})\"|([0-9A-Za-z'()+_,./:=?-]{1,70}))\s*(?:;|$)", re.IGNORECASE)
_FORM_DATA = re.compile(r"form-data\s*(?:;|$)", re.IGNORECASE)
_PARAMETER = re.compile(r';\s*([A-Za-z0-9*_-]+)=(?:"((?:\\.|[^"\\])*)"|([^\s;"]*))')
_ESCAPED = re.compile(r'\\(["\\])')

HEAD_LIMIT = 8 * 1024
"""Bytes of a part's head."""
LONGEST_PADDING = 80
"""Bytes of space behind a delimiter."""
MOST_PARTS = 64


class Form(Protocol):
    """Who takes the parts."""

    def part_begins(self, name: str, filename: str | None) -> None:
        """`filename` is given for files alone. It is the sender's and may hold anything."""

    def part_data(self, data: bytes) -> None: ...

    def part_ends(self) -> None: ...


def boundary_of(content_type: str) -> bytes:
    """Raises UnsupportedMedia for what is no form, InvalidInput for one whose boundary is missing."""
    kind = _KIND.fullmatch(content_type.strip())
    if kind is None:
        raise UnsupportedMedia(f"expected multipart/form-data, as `curl -F file=@model.onnx` sends it, got {content_type[:80]!r}")
    found = _BOUNDARY.search(kind[1] or "")
    if found is None:
        raise InvalidInput.field("content-type", "multipart/form-data with a boundary of at most 70 characters", repr(content_type))
    return (found[1] or found[2]).rstrip(" ").encode()


class Multipart:
    """Feed it the body in pieces of any size, then ask `finish`. Each byte is looked at once, but for the last few of a piece."""

    def __init__(self, boundary: bytes, form: Form) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._form = form
        self._rest = b"\r\n"
        """Received and not understood yet. A delimiter begins with a line end, which the first one need not have."""
        self._state: Literal["before", "delimiter", "head", "data", "behind"] = "before"
        self._parts = 0

    def feed(self, data: bytes) -> None:
        """Raises InvalidInput for what is no form, and whatever the form raises."""
        self._rest += data
        while self._step():
            pass

    def finish(self) -> None:
        """The body is over. Raises InvalidInput if the form is not."""
        if self._state != "behind":
            raise InvalidInput("the form ends before its last delimiter")

    def _step(self) -> bool:
        """Understand a bit more; False when more has to come first."""
        if self._state == "before":
            return self._begin()
        if self._state == "delimiter":
            return self._after_delimiter()
        if self._state == "head":
            return self._read_head()
        if self._state == "data":
            return self._pass_on()
        if self._rest.strip(b"\r\n"):
            raise InvalidInput.field("form", "nothing behind its last delimiter", repr(self._rest[:40]))
        self._rest = b""
        return False

    def _begin(self) -> bool:
        """At the first delimiter, before which further line ends may stand."""
        self._rest = b"\r\n" + self._rest.lstrip(b"\r\n")
        if len(self._rest) < len(self._delimiter):
            if not self._delimiter.startswith(self._rest):
                raise self._no_form()
            return False
        if not self._rest.startswith(self._delimiter):
            raise self._no_form()
        self._rest = self._rest[len(self._delimiter) :]
        self._state = "delimiter"
        return True

    def _no_form(self) -> InvalidInput:
        return InvalidInput.field("form", f"it to begin with {self._delimiter[2:].decode()}", repr(self._rest[2:80]))

    def _after_delimiter(self) -> bool:
        """A line end and another part, or two hyphens and nothing more."""
        line = self._rest.lstrip(b" \t")
        if len(self._rest) - len(line) > LONGEST_PADDING:
            raise InvalidInput("form: there is too much space behind a delimiter")
        if len(line) < 2:
            return False
        if line.startswith(b"--"):
            line = line[2:]
            self._state = "behind"
        elif line.startswith(b"\r\n"):
            self._parts += 1
            if self._parts > MOST_PARTS:
                raise InvalidInput(f"the form has more than {MOST_PARTS} parts")
            self._state = "head"
        else:
            raise InvalidInput.field("form", "a line end behind a delimiter", repr(line[:40]))
        self._rest = line
        return True

    def _read_head(self) -> bool:
        """From the line end behind the delimiter to the empty line."""
        end = self._rest.find(b"\r\n\r\n")
        if (len(self._rest) if end < 0 else end) > HEAD_LIMIT:
            raise InvalidInput(f"form: the head of part {self._parts} is over {HEAD_LIMIT} bytes")
        if end < 0:
            return False
        name, filename = _disposition(self._rest[2:end], self._parts)
        self._rest = self._rest[end + 4 :]
        self._form.part_begins(name, filename)
        self._state = "data"
        return True

    def _pass_on(self) -> bool:
        end = self._rest.find(self._delimiter)
        if end < 0:
            kept = min(len(self._rest), len(self._delimiter) - 1)  # the delimiter may have begun
            if len(self._rest) > kept:
                self._form.part_data(self._rest[: len(self._rest) - kept])
                self._rest = self._rest[len(self._rest) - kept :]
            return False
        if end:
            self._form.part_data(self._rest[:end])
        self._form.part_ends()
        self._rest = self._rest[end + len(self._delimiter) :]
        self._state = "delimiter"
        return True


def _disposition(head: bytes, number: int) -> tuple[str, str | None]:
    """Name and file name of a part."""
    try:
        lines = head.decode().split("\r\n")
    except UnicodeDecodeError:
        raise InvalidInput.field(f"form: head of part {number}", "UTF-8", repr(head[:80])) from None
    fields = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    found = [value for name, value in fields if name == "content-disposition"]
    if len(found) != 1 or not _FORM_DATA.match(found[0]):
        raise InvalidInput.field(f"form: head of part {number}", "one content-disposition of form-data", repr(head[:80]))
    encodings = [value for name, value in fields if name == "content-transfer-encoding" and value.lower() not in ("binary", "8bit", "7bit")]
    if encodings:
        raise InvalidInput.field(f"form: content-transfer-encoding of part {number}", "none", repr(encodings[0]))
    given = {name.lower(): _ESCAPED.sub(r"\1", quoted or plain) for name, quoted, plain in _PARAMETER.findall(found[0])}
    if "name" not in given:
        raise InvalidInput.field(f"form: head of part {number}", "a name", repr(found[0]))
    return given["name"], given.get("filename")
