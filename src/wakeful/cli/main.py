"""The verbs. Each lives in a module of its own, which is imported only when it is called: help must not take as long as a start."""

import importlib
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

from wakeful import __version__
from wakeful.cli.parser import DONE, WRONG_USE, Parser, complain


class Verb(Protocol):
    """A module of a verb."""

    def add_arguments(self, parser: Parser) -> None: ...

    def run(self, arguments: Namespace) -> int:
        """Do it and return the exit status. `arguments.started` is the monotonic time at which the program began."""


class Entry(NamedTuple):
    module: str
    summary: str


VERBS = {
    "serve": Entry("wakeful.cli.serve", "start the daemon, and serve until it is told to stop"),
    "check": Entry("wakeful.cli.check", "say what is wrong with a configuration, without starting"),
    "convert": Entry("wakeful.cli.convert", "make ONNX of a file of scikit-learn, XGBoost or LightGBM"),
    "bench": Entry("wakeful.cli.bench", "measure a server of the Open Inference Protocol, this one or another"),
}
HELP = """\
Wakeful serves models that sleep until a request wakes them.

{verbs}

  wakeful serve --demo                 a first try, with two small models
  wakeful serve --models-dir models    every model in models/

  wakeful VERB --help shows the options; wakeful --version the version.
""".format(verbs="\n".join(f"  wakeful {name:<8} {entry.summary}" for name, entry in VERBS.items()))


def main(arguments: Sequence[str], started: float) -> int:
    """Run a command line (without the program's name) and return the exit status."""
    if not arguments:
        print(HELP, end="", file=sys.stderr)
        return WRONG_USE
    name, *rest = arguments
    if name in ("-h", "--help", "help"):
        print(HELP, end="")
        return DONE
    if name in ("-V", "--version", "version"):
        print(__version__)
        return DONE
    if name not in VERBS:
        complain(f"wakeful has no verb {name}", ("hint", f"there are {', '.join(VERBS)}"))
        return WRONG_USE
    if sys.platform != "linux":
        complain(f"wakeful runs on Linux only, and this is {sys.platform}: its memory and processes are the kernel's own (memfd, pidfd, /proc)")
        return WRONG_USE
    entry = VERBS[name]
    verb = cast("Verb", importlib.import_module(entry.module))
    parser = Parser(f"wakeful {name}", entry.summary[0].upper() + entry.summary[1:] + ".")
    parser.set_defaults(started=started)
    verb.add_arguments(parser)
    return verb.run(parser.parse(rest))
