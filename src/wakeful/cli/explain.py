"""`wakeful explain`: why a model is as it is, and what a request would do to it. All of it is the daemon's own account."""

import textwrap
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

from wakeful.cli.change import named
from wakeful.cli.client import PREFIX, Client
from wakeful.cli.looks import Looks, printable
from wakeful.cli.output import Output, add_client_options, answered
from wakeful.cli.parser import DONE, Parser

INDENT = 9


def add_arguments(parser: Parser) -> None:
    parser.usage = f"{parser.prog} MODEL [--wake] [option ...]"
    parser.add_argument("model", metavar="MODEL", help="a name, or a name:version")
    parser.add_argument("--wake", action="store_true", help="plan a load: what it needs, and who would have to go for it")
    add_client_options(parser)


def run(arguments: Namespace) -> int:
    def work(client: Client, output: Output) -> int:
        name = named(arguments.model, client.get(f"{PREFIX}/state")["models"])["key"]
        answer = client.model(name, path="/explain", wake=1 if arguments.wake else None)
        output.result("explain", answer, lambda looks: list(page(answer, looks)))
        return DONE

    return answered(arguments, work)


def page(answer: Mapping[str, Any], looks: Looks) -> Iterator[str]:
    """The first line as it is, then each line of the account behind its label."""
    yield from _wrapped("", printable(answer["text"].partition("\n")[0]), looks)
    for line in answer["lines"]:
        yield from _wrapped(f"{printable(line['label']):<{INDENT - 1}} ", printable(line["text"]), looks)
    if answer["plan"] is not None:
        yield from map(printable, answer["plan"]["text"].splitlines())


def _wrapped(label: str, text: str, looks: Looks) -> list[str]:
    if looks.width is None:
        return [label + text]
    indent = " " * len(label)
    return textwrap.wrap(
        text, max(looks.width, 40), initial_indent=label, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False,
    )
