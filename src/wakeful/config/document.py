"""A configuration file as read: its values, and where each of them stands."""

import difflib
import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wakeful.config.locate import KeyPath, Position, locate_json, locate_toml
from wakeful.config.problems import Place, Problem

MOST_BYTES = 64 << 20
"""Of a file."""
_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SURROGATES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


@dataclass(frozen=True)
class Document:
    name: str
    """The path as the user gave it."""
    values: dict[str, Any] = field(default_factory=dict)
    positions: dict[KeyPath, Position] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    def place(self, path: KeyPath) -> Place:
        """Of a key; of the table it would be in, when it is missing."""
        while path and path not in self.positions:
            path = path[:-1]
        if not path:
            return Place(self.name)
        position = self.positions[path]
        return Place(self.name, position.line, position.column, position.width, self.lines[position.line - 1])

    def __contains__(self, path: KeyPath) -> bool:
        return path in self.positions


def read_document(path: Path) -> Document | Problem:
    """Reads a .json file, or any other as TOML. A byte order mark, and an empty file, are accepted."""
    name = str(path)
    try:
        text = _content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Problem("encoding", f"not UTF-8 text: byte {error.start} cannot be read", Place(name), hint="save the file as UTF-8")
    except (OSError, ValueError) as error:
        return _unreadable(path, error)
    text = text.replace("\r\n", "\n")
    if path.suffix.lower() == ".json":
        return _parse_json(name, text)
    parsed = _parse_toml(name, text)
    if isinstance(parsed, Problem) and _SURROGATES.search(text):
        # The SnoozeML SDK escapes characters beyond U+FFFF as JSON does, in two halves, which TOML forbids.
        return _parse_toml(name, _SURROGATES.sub(lambda pair: json.loads(f'"{pair[0]}"'), text))
    return parsed


def _content(path: Path) -> bytes:
    """Raises OSError, and ValueError for what has no end, such as a device."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return content


def near_names(name: str, directory: Path, pattern: str = "*") -> list[str]:
    """Names in a directory that somebody may have meant; none if it cannot be read."""
    try:
        present = sorted(entry.name for entry in directory.glob(pattern))
    except (OSError, ValueError):
        return []
    return difflib.get_close_matches(name, present, n=3, cutoff=0.6)


def _unreadable(path: Path, error: Exception) -> Problem:
    place = Place(str(path))
    if isinstance(error, IsADirectoryError):
        return Problem("file", f"{path} is a directory, not a file", place, hint="for a directory of models: --models-dir")
    if isinstance(error, FileNotFoundError):
        near = near_names(path.name, path.parent)
        return Problem("missing-file", f"{path} does not exist", place, hint=f"near: {', '.join(near)}" if near else None)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Problem("file", f"{path} cannot be read: {reason}", place)


def _parse_toml(name: str, text: str) -> Document | Problem:
    lines = tuple(text.split("\n"))
    try:
        values = tomllib.loads(text)
        return Document(name, values, locate_toml(text), lines)
    except tomllib.TOMLDecodeError as error:
        return _syntax_problem(name, lines, str(error))
    except (RecursionError, ValueError) as error:
        return _beyond_the_parser(name, error)


def _syntax_problem(name: str, lines: tuple[str, ...], message: str) -> Problem:
    match = _AT.search(message)
    line = int(match[1]) if match and match[1] else len(lines)
    column = int(match[2]) if match and match[2] else len(lines[-1]) + 1
    twice = message.startswith("Cannot")
    hint = "the same table or key stands here a second time; several models are several [[models]]" if twice else None
    return Problem("syntax", _AT.sub("", message), Place(name, line, column, 1, lines[line - 1]), hint=hint)


class _Twice(ValueError):
    """A key that a JSON object holds twice: json would keep the last one silently."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """null counts as absent, as the SnoozeML SDK means it."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise _Twice(f'"{name}" stands twice in one object')
    return {name: value for name, value in pairs if value is not None}


def _parse_json(name: str, text: str) -> Document | Problem:
    lines = tuple(text.split("\n"))
    if not text.strip():
        return Document(name, lines=lines)
    try:
        values = json.loads(text, object_pairs_hook=_unique)
        if not isinstance(values, dict):
            return Problem("wrong-type", "the file must hold one JSON object", Place(name))
        return Document(name, values, locate_json(text), lines)
    except json.JSONDecodeError as error:
        return Problem("syntax", error.msg, Place(name, error.lineno, error.colno, 1, lines[error.lineno - 1]))
    except _Twice as error:
        return Problem("duplicate-key", str(error), Place(name))
    except (RecursionError, ValueError) as error:
        return _beyond_the_parser(name, error)


def _beyond_the_parser(name: str, error: Exception) -> Problem:
    """Nested too deeply, or a number with thousands of digits."""
    return Problem("syntax", "nested too deeply" if isinstance(error, RecursionError) else str(error), Place(name))
