"""`wakeful cluster bootstrap`: the file that a gateway's Envoy is started with."""

from argparse import Namespace
from pathlib import Path

from wakeful.cli.cluster_gateway_options import Missing, gateway_of
from wakeful.cli.cluster_gateway_options import add_arguments as add_gateway
from wakeful.cli.parser import DONE, NO, WRONG_USE, Parser, complain


def add_arguments(parser: Parser) -> None:
    add_gateway(parser)
    parser.add_argument("--output", metavar="FILE", type=Path, help="where it goes (default: stdout); then: envoy -c FILE")


def run(arguments: Namespace) -> int:
    from wakeful.cluster.gateway.bootstrap import render  # noqa: PLC0415 - help does without

    try:
        text = render(gateway_of(arguments))
    except Missing as error:
        complain(str(error))
        return WRONG_USE
    if arguments.output is None:
        print(text, end="")
        return DONE
    try:
        arguments.output.write_text(text, encoding="utf-8")
    except OSError as error:
        complain(f"cannot write {error.filename}: {error.strerror}")
        return NO
    return DONE
