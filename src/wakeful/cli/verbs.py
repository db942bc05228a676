"""What a verb is, and how one of several is found and run."""

import difflib
import importlib
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from wakeful.cli.parser import DONE, WRONG_USE, Parser, complain


class Verb(Protocol):
    """A module of a verb."""

    def add_arguments(self, parser: Parser) -> None: ...

    def run(self, arguments: Namespace) -> int:
        """Do it and return the exit status. `arguments.started` is the monotonic time at which the program began."""


class Group(Protocol):
    """A module of several verbs."""

    def main(self, arguments: Sequence[str], started: float) -> int: ...


class Entry(NamedTuple):
    """A verb's module is imported only when it is called: help must not take as long as a start."""

    module: str
    summary: str
    group: bool = False
    """The module has verbs of its own, and `main` for them."""


def listed(program: str, verbs: Mapping[str, Entry]) -> str:
    """A line for each, as help shows them."""
    width = max(map(len, verbs))
    return "\n".join(f"  {program} {name:<{width}} {entry.summary}" for name, entry in verbs.items())


ELSEWHERE = {
    "list": "ps", "ls": "ps", "status": "ps", "start": "serve", "run": "serve", "stop": "unload", "sleep": "unload", "wake": "load",
    "predict": "infer", "call": "infer", "logs": "events", "log": "events", "why": "explain", "validate": "check", "new": "init",
}
"""What other programs call it."""
NEAR = 0.7
"""Of difflib: less and fetch would be bench."""


def _hint(name: str, verbs: Mapping[str, Entry]) -> str:
    near = [ELSEWHERE[name]] if ELSEWHERE.get(name) in verbs else difflib.get_close_matches(name, verbs, n=1, cutoff=NEAR)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(verbs)}"


def dispatch(program: str, verbs: Mapping[str, Entry], text: str, arguments: Sequence[str], started: float) -> int:
    """Run the verb that the first argument names and return its exit status. `text` is the help for all of them."""
    if not arguments:
        print(text, end="", file=sys.stderr)
        return WRONG_USE
    name, *rest = arguments
    if name == "help" and rest:  # of a verb
        return dispatch(program, verbs, text, [*rest, "--help"], started)
    if name in ("-h", "--help", "help"):
        print(text, end="")
        return DONE
    if name not in verbs:
        complain(f"{program} has no verb {name}", ("hint", _hint(name, verbs)))
        return WRONG_USE
    entry = verbs[name]
    if entry.group:
        return cast("Group", importlib.import_module(entry.module)).main(rest, started)
    verb = cast("Verb", importlib.import_module(entry.module))
    parser = Parser(f"{program} {name}", entry.summary[0].upper() + entry.summary[1:] + ".")
    parser.set_defaults(started=started)
    verb.add_arguments(parser)
    return verb.run(parser.parse(rest))
