"""How text may look on a stream: whether colours, which symbols, how wide. Pure functions of the environment and of what the stream is."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Choice = Literal["auto", "always", "never"]

UNICODE: Final = {
    "waiting": "◔", "waking": "◔", "ready": "●", "busy": "◉", "draining": "◍", "dead": "✕", "asleep": "○", "failed": "✕", "to": "→", "cut": "…",
    "cursor": "▶", "full": "█", "bars": "▁▂▃▄▅▆▇█", "eighths": " ▏▎▍▌▋▊▉", "arrows": "↑↓",
}
ASCII: Final = {
    "waiting": "~", "waking": "~", "ready": "*", "busy": "@", "draining": "v", "dead": "x", "asleep": "o", "failed": "x", "to": "->", "cut": "...",
    "cursor": ">", "full": "#", "bars": "_.-=+*%#", "eighths": "        ", "arrows": "jk",
}
CODES: Final = {
    "ready": "32", "pinned": "32", "busy": "34", "waking": "33", "draining": "35", "failed": "31", "dead": "31", "error": "31", "warn": "33",
    "head": "1", "selected": "7",
}
"""Of the terminal's own sixteen colours, none of the bright ones: those cannot be read on every background. Each goes with a word or a shape."""
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
"""What Python puts into LC_CTYPE by itself where the locale is C."""


class Looks(NamedTuple):
    colour: bool = False
    unicode: bool = False
    width: int | None = None
    """Columns; None: nothing is cut or broken."""

    def symbol(self, name: str) -> str:
        return (UNICODE if self.unicode else ASCII)[name]

    def paint(self, text: str, name: str) -> str:
        code = CODES.get(name)
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code and text else text

    def cut(self, text: str, width: int | None) -> str:
        """To so many columns, with a mark where something is missing."""
        if width is None or len(text) <= width:
            return text
        mark = self.symbol("cut")
        return (text[: max(width - len(mark), 0)] + mark)[: max(width, 0)]


def wants_colour(choice: Choice, environ: Mapping[str, str], *, terminal: bool) -> bool:
    """--color goes before NO_COLOR, that before FORCE_COLOR and CLICOLOR_FORCE, and those before what the terminal is."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name) not in (None, "", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return terminal and environ.get("TERM") != "dumb"


def speaks_unicode(environ: Mapping[str, str], encoding: str | None) -> bool:
    """By the locale: Python writes UTF-8 in the locale C too, whose terminal may not show it."""
    if (encoding or "").lower().replace("-", "") != "utf8":
        return False
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    if not environ.get("LC_ALL") and locale in _COERCED and environ.get("LANG") in ("C", "POSIX"):
        return False
    return "utf8" in locale.lower().replace("-", "")


def printable(text: str) -> str:
    """On one line and without control characters, so that a name cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char in "\n\t" else "?" for char in text)
