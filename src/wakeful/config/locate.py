"""Where each key of a configuration file stands.

`tomllib` and `json` give values without positions. This reads a text that one of them has accepted already, so it need not judge, only
follow along: what is legal is known, and a value that is neither a string, an array nor a table runs up to the next delimiter.
"""

import json
import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass, field

KeyPath = tuple[str | int, ...]
"""Keys and array indices from the top of the document: `("models", 1, "device")`."""


def dotted(path: KeyPath) -> str:
    """`models[1].device`"""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


@dataclass(frozen=True, slots=True)
class Position:
    """First character of a key (or of an array's element), counted from 1, and its width in characters."""

    line: int
    column: int
    width: int


_TRIVIA = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""("{0,2})'  # up to two quotes may precede the closing three
    r"|'''.*?'''('{0,2})"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def locate_toml(text: str) -> dict[KeyPath, Position]:
    """Positions of all keys, tables and array elements of a valid TOML text with `\\n` line ends.

    Shape: `[a.b]` gives `("a",)` and `("a", "b")`; the second `[[models]]` gives `("models", 1)`.
    """
    scanner = _Scanner(text, separator="=")
    scanner.document()
    return scanner.found


def locate_json(text: str) -> dict[KeyPath, Position]:
    """Positions of all keys and array elements of a valid JSON text with `\\n` line ends."""
    scanner = _Scanner(text, separator=":")
    scanner.value(())
    return scanner.found


@dataclass
class _Scanner:
    text: str
    separator: str
    at: int = 0
    found: dict[KeyPath, Position] = field(default_factory=dict)
    _last: dict[KeyPath, int] = field(default_factory=dict)
    """Array of tables to the index of its latest element, which later headers below it mean."""

    def __post_init__(self) -> None:
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", self.text))]

    def document(self) -> None:
        table: KeyPath = ()
        while self._next():
            if self._take("[["):
                table = self._header(is_array=True)
                self._take("]]")
            elif self._take("["):
                table = self._header(is_array=False)
                self._take("]")
            else:
                self._pair(table)

    def value(self, path: KeyPath) -> None:
        start = self._next()
        if start == "[":
            self._array(path)
        elif start == "{":
            self._table(path)
        elif string := _STRING.match(self.text, self.at):
            self.at = string.end()
        elif scalar := _SCALAR.match(self.text, self.at):
            self.at = scalar.end()

    def _array(self, path: KeyPath) -> None:
        self._take("[")
        index = 0
        while self._next() not in ("]", ""):
            self._record((*path, index), self.at, self.at + 1)
            self.value((*path, index))
            index += 1
            self._next()
            self._take(",")
        self._take("]")

    def _table(self, path: KeyPath) -> None:
        self._take("{")
        while self._next() not in ("}", ""):
            self._pair(path)
            self._next()
            self._take(",")
        self._take("}")

    def _pair(self, table: KeyPath) -> None:
        path = table
        for part, start, end in self._key():
            path = (*path, part)
            self._record(path, start, end)
        self._next()
        self._take(self.separator)
        self.value(path)

    def _header(self, *, is_array: bool) -> KeyPath:
        path: KeyPath = ()
        parts = self._key()
        for place, (part, start, end) in enumerate(parts, start=1):
            path = (*path, part)
            self._record(path, start, end)
            if is_array and place == len(parts):
                self._last[path] = self._last.get(path, -1) + 1
            if path in self._last:
                path = (*path, self._last[path])
                self._record(path, start, end)
        return path

    def _key(self) -> list[tuple[str, int, int]]:
        """The parts of a dotted key, each with its first and its past-the-last character."""
        parts = []
        while True:
            self._next()
            start = self.at
            match = _STRING.match(self.text, start) or _BARE.match(self.text, start)
            if match is None:
                raise ValueError(f"no key at character {start}")
            self.at = match.end()
            parts.append((self._unquote(match[0]), start, self.at))
            self._next()
            if not self._take("."):
                return parts

    def _unquote(self, key: str) -> str:
        if key[0] not in "\"'":
            return key
        if self.separator == ":":
            return str(json.loads(key))
        return str(tomllib.loads(f"key = {key}")["key"])

    def _next(self) -> str:
        """Passes over space and comments; the character that follows, "" at the end."""
        trivia = _TRIVIA.match(self.text, self.at)
        if trivia is not None:
            self.at = trivia.end()
        return self.text[self.at : self.at + 1]

    def _take(self, token: str) -> bool:
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def _record(self, path: KeyPath, start: int, end: int) -> None:
        line = bisect_right(self._line_starts, start)
        self.found.setdefault(path, Position(line, start - self._line_starts[line - 1] + 1, end - start))
