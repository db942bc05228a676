"""What is wrong with a configuration, said the way a compiler would: where, what, and what to write instead."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_SECRET = re.compile(r"""([\w-]*(?:key|secret|token|password|jwt)[\w-]*["']?\s*[=:]\s*).*""", re.IGNORECASE)
_LOGIN = re.compile(r"://[^\s\"']*@")
_QUERY = re.compile(r"(://[^\s\"'?]*)\?[^\s\"']*")
_WIDEST_QUOTE = 160


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written. `file` is the path as the user gave it, or words such as "option --port"."""

    file: str
    line: int | None = None
    column: int | None = None
    """1 for the first character."""
    width: int = 1
    """Characters to underline."""
    source: str | None = None
    """The line itself."""

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Problem:
    code: str
    """unknown-key, wrong-type, out-of-range, ...: stable, for programs."""
    message: str
    place: Place | None = None
    key: str = ""
    """The key with its table, such as `models[1].device`."""
    hint: str | None = None
    severity: Literal["error", "warning"] = "error"

    @property
    def file(self) -> str | None:
        return self.place.file if self.place else None

    @property
    def line(self) -> int | None:
        return self.place.line if self.place else None

    @property
    def column(self) -> int | None:
        return self.place.column if self.place else None

    def render(self) -> str:
        lines = [f"{self.severity}[{self.code}]: {_printable(self.message)}"]
        if self.place is not None:
            lines.append(f"  --> {_printable(str(self.place))}")
            lines.extend(_quote(self.place))
        if self.hint is not None:
            lines.append(f"  hint: {_printable(self.hint)}")
        return "\n".join(lines)


def masked(text: str) -> str:
    """Addresses without the name, the password and the query that may be in them."""
    return _QUERY.sub(r"\1", _LOGIN.sub("://...@", text))


class ConfigError(Exception):
    """A configuration that cannot be used. `problems` holds every error and warning that was found, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(render(self.problems))


def render(problems: Sequence[Problem]) -> str:
    """All problems as text for a terminal, with a count at the end."""
    errors = sum(problem.severity == "error" for problem in problems)
    counts = [_count(errors, "error"), _count(len(problems) - errors, "warning")]
    return "\n".join([*(problem.render() for problem in problems), ", ".join(filter(None, counts))])


def in_order(problems: Sequence[Problem]) -> list[Problem]:
    """Errors before warnings, each in the order of lines; what has no line comes first."""
    return sorted(problems, key=lambda problem: (problem.severity != "error", problem.line or 0, problem.column or 0))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}" if number else ""


def _quote(place: Place) -> list[str]:
    """The line with carets under the key. The value of a secret is not repeated: this text ends up in logs."""
    if place.line is None or place.column is None or not (place.source or "").strip():
        return []
    source = masked(_SECRET.sub(r"\1...", place.source or ""))[:_WIDEST_QUOTE]
    before = source[: place.column - 1]
    if len(before) < place.column - 1:
        return []
    width = max(1, min(place.width, len(source) - len(before)))
    margin = " " * len(str(place.line))
    indent = "".join(char if char == "\t" else " " for char in before)
    return [f"{place.line} | {_printable(source).rstrip()}", f"{margin} | {indent}{'^' * width}"]


def _printable(text: str) -> str:
    """Without control characters, so that a file cannot steer the terminal it is quoted on."""
    return "".join(char if char.isprintable() or char == "\t" else "?" for char in text)
