"""What a verb says: the result on stdout, everything else on stderr, or one JSON object for programs."""

import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from wakeful.cli.client import Client, Failure, client_of
from wakeful.cli.looks import Choice, Looks, printable, speaks_unicode, wants_colour
from wakeful.cli.parser import WRONG_USE, Parser

FORMAT = 1


class Output:
    def __init__(self, *, json: bool = False, choice: Choice = "auto", quiet: bool = False, verbose: bool = False) -> None:
        self.json, self.quiet, self.verbose = json, quiet, verbose
        self.looks = looks_of(sys.stdout, choice)
        self.asides = looks_of(sys.stderr, choice)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a name that this encoding does not have is no reason to fail
                stream.reconfigure(errors="replace")

    def result(self, kind: str, data: Any, lines: Callable[[Looks], Iterable[str]]) -> None:
        """One answer: `data` for programs, what `lines` makes of it for people."""
        if self.json:
            self._write(json_text({"wakeful": FORMAT, "kind": kind, "data": data}))
        else:
            self._write("\n".join(lines(self.looks)))

    def line(self, text: str) -> None:
        """A part of the result, for people only."""
        if not self.json:
            self._write(text)

    def note(self, text: str) -> None:
        """Beside the result: progress and hints. With -q there are none."""
        if not self.quiet and not self.json:
            print(text, file=sys.stderr)

    def fail(self, failure: Failure) -> None:
        if self.json:
            error = {"code": failure.code, "message": failure.message, "hint": failure.hint, "exit": failure.exit}
            self._write(json_text({"wakeful": FORMAT, "error": error}))
            return
        print(f"{self.asides.paint('error', 'error')}: {printable(failure.message)}", file=sys.stderr)
        if failure.hint:
            print(f"  hint: {printable(failure.hint)}", file=sys.stderr)

    def fail_configuration(self, error: Exception) -> int:
        """Mistakes in a configuration, as it tells them itself. Returns the exit status."""
        if self.json:
            self.fail(Failure("invalid_input", str(error), WRONG_USE, "wakeful check --json has each of them with its place"))
        else:
            print(error, file=sys.stderr)
        return WRONG_USE

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()  # whoever follows through a pipe sees each line when it is there


def looks_of(stream: TextIO, choice: Choice = "auto") -> Looks:
    terminal = stream.isatty()
    return Looks(
        wants_colour(choice, os.environ, terminal=terminal), speaks_unicode(os.environ, stream.encoding), _columns(stream) if terminal else None,
    )


def _columns(stream: TextIO) -> int:
    text = os.environ.get("COLUMNS", "")
    if text.isdecimal() and int(text):
        return int(text)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def json_text(value: Any) -> str:
    import json  # noqa: PLC0415 - not needed for what people read

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def add_client_options(parser: Parser, *, seconds: float = 10) -> None:
    """What all verbs have that talk to a daemon. `seconds`: how long an answer may take, unless --timeout says otherwise."""
    parser.epilog = "Without --url, WAKEFUL_URL names the daemon, else it is http://127.0.0.1:8080. A key is taken from WAKEFUL_API_KEY."
    daemon = parser.add_argument_group("daemon")
    daemon.add_argument("--url", metavar="URL", help="where the daemon is")
    daemon.add_argument("--key-file", type=Path, metavar="FILE", help="holds the key to show")
    daemon.add_argument("--timeout", type=seconds_of, default=seconds, metavar="SECONDS", help=f"for each answer (default {seconds:g})")
    add_output_options(parser)


def add_output_options(parser: Parser) -> None:
    """What all verbs have that give a result."""
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="for programs")
    output.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="(default auto: on a terminal)")
    output.add_argument("-q", "--quiet", action="store_true", help="errors and the result only")
    output.add_argument("-v", "--verbose", action="store_true", help="more of it")


def seconds_of(text: str) -> float:
    """Type of an option: "2", "0.5s", "10m", "1h", "2d"."""
    factor = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:], 0)
    number = text[:-1] if factor else text
    try:
        value = float(number) * (factor or 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ArgumentTypeError(f"expected seconds above 0, or such as 10m and 1h; got {text}")
    return value


def output_of(arguments: Namespace) -> Output:
    return Output(json=arguments.json, choice=arguments.color, quiet=arguments.quiet, verbose=arguments.verbose)


def answered(arguments: Namespace, work: Callable[[Client, Output], int]) -> int:
    """Do the work of a verb that talks to a daemon; a Failure is told, and decides the exit status."""
    output = output_of(arguments)
    try:
        return work(client_of(arguments), output)
    except Failure as failure:
        output.fail(failure)
        return failure.exit
