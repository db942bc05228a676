"""`wakeful ps`: the models, what they do and what they hold."""

import sys
import time
from argparse import Namespace

from wakeful.cli import ps_table
from wakeful.cli.client import PREFIX, Client
from wakeful.cli.output import Output, add_client_options, answered, seconds_of
from wakeful.cli.parser import DONE, Parser

CLEAR = "\x1b[H\x1b[J"
LEGEND = "REQ/S, P50 and P99 are of the last minute. SLEEPS: when a model falls asleep if nobody asks for it; in brackets how long it takes to wake."


def add_arguments(parser: Parser) -> None:
    parser.add_argument("-a", "--all", action="store_true", help="also models that have never been awake, and tokenizers")
    parser.add_argument("--wide", action="store_true", help="more columns")
    parser.add_argument("--sort", choices=tuple(ps_table.ORDERS), default="name", help="largest first, but names (default name)")
    parser.add_argument("--watch", type=seconds_of, metavar="SECONDS", help="again and again, until Ctrl-C")
    add_client_options(parser)
    parser.epilog = f"{LEGEND} {parser.epilog}"


def run(arguments: Namespace) -> int:
    def work(client: Client, output: Output) -> int:
        show(client, output, arguments)
        while arguments.watch:
            time.sleep(arguments.watch)
            if sys.stdout.isatty() and not output.json:
                sys.stdout.write(CLEAR)
            else:
                output.line("")
            show(client, output, arguments)
        return DONE

    return answered(arguments, work)


def show(client: Client, output: Output, arguments: Namespace) -> None:
    state = client.get(f"{PREFIX}/state")
    output.result("ps", state, lambda looks: [
        *ps_table.page(state, looks, everything=arguments.all, wide=arguments.wide, order=arguments.sort),
        *(ps_table.lines_of(state) if output.verbose else ()),
    ])
