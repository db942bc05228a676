"""`wakeful serve`: start the daemon."""

import sys
from argparse import Namespace

from wakeful.cli.check import summary
from wakeful.cli.options import add_options, options_of
from wakeful.cli.parser import WRONG_USE, Parser
from wakeful.config.load import load
from wakeful.config.problems import ConfigError


def add_arguments(parser: Parser) -> None:
    parser.add_argument("--check", action="store_true", help="say first what wakeful check says of the configuration")
    add_options(parser)


def run(arguments: Namespace) -> int:
    options = options_of(arguments)
    try:
        settings = load(options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return WRONG_USE
    if arguments.check:
        print(*summary(settings), sep="\n", file=sys.stderr)
    from wakeful.cli import daemon  # noqa: PLC0415 - imports the whole program, which help and a faulty configuration need not wait for

    return daemon.run(settings, arguments.started, lambda: load(options))
