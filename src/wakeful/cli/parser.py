"""Reading a command line, and saying what is wrong with it in the form that all commands use."""

import argparse
import difflib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from wakeful.cli.status import DONE, NO, WRONG_USE

__all__ = ["DONE", "NO", "WRONG_USE", "Parser", "complain", "port"]


def complain(message: str, *notes: tuple[str, str]) -> None:
    """An error on stderr, with notes such as ("hint", "--port 0") below it."""
    print(f"error: {message}", file=sys.stderr)
    for label, text in notes:
        print(f"  {label}: {text}", file=sys.stderr)


def port(text: str) -> int:
    """Type of an option."""
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"expected a port from 1 to 65535, got {text}")
    return int(text)


class Parser(argparse.ArgumentParser):
    """argparse, but an option that does not exist is answered with the nearest one that does."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog, f"{prog} [option ...]", description, "What is not said here is taken from variables (WAKEFUL_PORT for --port), then from the file.",
            allow_abbrev=False, add_help=False, formatter_class=_Formatter,
        )

    def parse(self, args: Sequence[str]) -> argparse.Namespace:
        """What was given; ends the program when that is wrong, and after it has helped."""
        self.add_argument_group("also").add_argument("-h", "--help", action="help", help="show this")
        arguments, unknown = self.parse_known_intermixed_args(args)  # options may stand between names
        if unknown:
            name = unknown[0].partition("=")[0]
            complain(f"{self.prog} does not know {name}", ("hint", self._hint(name)))
            sys.exit(WRONG_USE)
        return arguments

    def _hint(self, name: str) -> str:
        known = self._option_string_actions
        near = difflib.get_close_matches(name, known, n=1)
        if near:
            return f"did you mean {near[0]}?"
        if not name.startswith("-") and "--models-dir" in known and Path(name).exists():  # what people try first
            place = Path(name)
            config = place.is_file() and place.suffix in (".toml", ".json") and "--config" in known
            return f"did you mean {'--config' if config else '--models-dir'} {shlex.quote(str(place if config or place.is_dir() else place.parent))}?"
        return f"{self.prog} --help shows what there is"

    def error(self, message: str) -> NoReturn:
        complain(message, ("hint", f"{self.prog} --help shows what there is"))
        sys.exit(WRONG_USE)


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=29)
