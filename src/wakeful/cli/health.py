"""`wakeful health`: does the daemon take requests? Made to be asked every few seconds, so it is called before any option parser is imported."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wakeful.cli.client import DEFAULT_URL, SECONDS, URL_VARIABLE, Client, Failure
from wakeful.cli.status import DONE, NO, WRONG_USE
from wakeful.cli.wire import parse

if TYPE_CHECKING:
    from argparse import Namespace

    from wakeful.cli.output import Output
    from wakeful.cli.parser import Parser

READY, LIVE = "/health/ready", "/health/live"


def add_arguments(parser: "Parser") -> None:
    from wakeful.cli.output import add_client_options  # noqa: PLC0415 - imports what `fast` does without

    parser.add_argument("--live", action="store_true", help="only whether it runs; it may be starting or stopping")
    add_client_options(parser, seconds=SECONDS)


def run(arguments: "Namespace") -> int:
    from wakeful.cli.output import answered  # noqa: PLC0415 - as above

    def work(client: Client, output: "Output") -> int:
        good, text = ask(client, live=arguments.live)
        output.result("health", {"good": good, "text": text}, lambda _: [] if good and output.quiet else [text])
        return DONE if good else NO

    return answered(arguments, work)


def fast(arguments: Sequence[str]) -> int | None:
    """The same for the options that probes use; None: there are others, which `run` knows."""
    rest, url, live, quiet = list(arguments), os.environ.get(URL_VARIABLE) or DEFAULT_URL, False, False
    while rest:
        option = rest.pop(0)
        if option == "--url" and rest:
            url = rest.pop(0)
        elif option == "--live":
            live = True
        elif option in ("-q", "--quiet"):
            quiet = True
        else:
            return None
    try:
        good, text = ask(Client(parse(url)), live=live)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_USE
    except Failure as failure:
        print(f"error: {failure.message}\n  hint: {failure.hint}", file=sys.stderr)
        return failure.exit
    if not (good and quiet):
        print(text)
    return DONE if good else NO


def ask(client: Client, *, live: bool) -> tuple[bool, str]:
    """Whether it is well, and what it says. Raises Failure where nobody answers."""
    word = "live" if live else "ready"
    answer = client.ask("GET", LIVE if live else READY)
    if answer.status == 200 and answer.body == f'{{"status":"{word}"}}'.encode():
        return True, word
    import json  # noqa: PLC0415 - the usual answer needs none

    from wakeful.cli.looks import printable  # noqa: PLC0415

    try:
        said = json.loads(answer.body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        said = f"what answers at {client.address} is not Wakeful (status {answer.status})"
    return False, printable(str(said))
