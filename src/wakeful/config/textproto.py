"""Protocol buffers in their text format, read without a schema: a message is its fields by name, each with all its values in the order of the file.

A number becomes an int or a float, `true` and `false` truth values, strings and names of enumerations text, a message a dict. Whoever knows the
schema says what is wrong with a value, and what is unknown. (protobuf's own reader drops unknown fields in silence, or fails at the first.)
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

Message = dict[str, list[Any]]

MOST_NESTED = 32
LONGEST_NUMBER = 100
"""Characters."""
LONGEST_SHOWN = 100
_TOKEN = re.compile(
    r"""(?P<space>[\s]+|\#[^\n]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>-?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?))(?![\w.])
    |(?P<name>-?[A-Za-z_]\w*)
    |(?P<sign>[{}<>\[\]:,;])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CLOSING = {"{": "}", "<": ">"}


class TextProtoError(ValueError):
    """Says what is wrong; `line` and `column` say where, from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class _Token(NamedTuple):
    kind: str
    """text, number, name, sign, or end."""
    text: str
    at: int


def parse(source: str) -> Message:
    """Raises TextProtoError."""
    return _Reader(source).message("")


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = self._read()
        self._next = next(self._tokens)
        self._depth = 0

    def message(self, closing: str) -> Message:
        """Fields up to `closing`, or to the end of the file."""
        self._depth += 1
        if self._depth > MOST_NESTED:
            self._fail(f"messages within {MOST_NESTED} others")
        fields: Message = {}
        while self._next.text != closing or self._next.kind not in ("sign", "end"):
            name = self._take()
            if name.kind != "name":
                self._fail("a field's name", name)
            values = fields.setdefault(name.text, [])
            colon = self._skip(":")
            if self._next.text == "[" and self._next.kind == "sign":
                values += self._list()
            else:
                values.append(self._value(colon=colon))
            if not self._skip(","):
                self._skip(";")
        self._take()
        self._depth -= 1
        return fields

    def _list(self) -> list[Any]:
        self._take()
        values: list[Any] = []
        while not self._skip("]"):
            if values and not self._skip(","):
                self._fail('"," or "]"')
            values.append(self._value(colon=True))
        return values

    def _value(self, *, colon: bool) -> Any:
        token = self._take()
        if token.kind == "sign" and token.text in _CLOSING:
            return self.message(_CLOSING[token.text])
        if not colon:
            self._fail('":" or "{"', token)
        if token.kind == "text":
            pieces = [token.text]
            while self._next.kind == "text":  # strings that follow one another are one
                pieces.append(self._take().text)
            return "".join(_ESCAPE.sub(_unescape, piece[1:-1]) for piece in pieces)
        if token.kind == "number":
            if len(token.text) > LONGEST_NUMBER:
                self._fail("a number of 64 bits", token)
            return _number(token.text)
        if token.kind == "name":
            return {"true": True, "false": False}.get(token.text, token.text)
        return self._fail("a value", token)

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _skip(self, sign: str) -> bool:
        """Take this sign, if it comes next."""
        there = self._next.kind == "sign" and self._next.text == sign
        if there:
            self._take()
        return there

    def _read(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._source):
            match = _TOKEN.match(self._source, at)
            if match is None:
                self._fail("a name, a value or a bracket", _Token("", self._source[at], at))
            kind = match.lastgroup or ""
            if kind != "space":
                yield _Token(kind, match[0], at)
            at = match.end()
        yield _Token("end", "", at)

    def _fail(self, expected: str, got: _Token | None = None) -> NoReturn:
        token = got or self._next
        line = self._source.count("\n", 0, token.at) + 1
        column = token.at - self._source.rfind("\n", 0, token.at)
        raise TextProtoError(f"expected {expected}, got {repr(token.text[:LONGEST_SHOWN]) if token.text else 'the end of the file'}", line, column)


def _unescape(match: re.Match[str]) -> str:
    octal, hexadecimal, other = match.groups()
    if octal or hexadecimal:
        return chr(int(octal, 8) if octal else int(hexadecimal, 16))
    return _ESCAPED.get(other, other)


def _number(text: str) -> int | float:
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if digits[:2] in ("0x", "0X"):
        return sign * int(digits, 16)
    if digits.isdecimal():
        return sign * (int(digits, 8) if digits.startswith("0") and set(digits) <= set("01234567") else int(digits))
    return sign * float(digits.rstrip("fF"))
