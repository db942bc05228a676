"""`wakeful cluster bootstrap`: the file that a gateway's Envoy is started with, and beside it one by which Envoy finds its token."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from wakeful.cli.cluster_gateway_options import Missing, gateway_of
from wakeful.cli.cluster_gateway_options import add_arguments as add_gateway
from wakeful.cli.parser import DONE, NO, WRONG_USE, Parser, complain

TOKEN_SOURCE = "token.json"  # noqa: S105 - a file's name
"""Beside Envoy's own file."""


def add_arguments(parser: Parser) -> None:
    add_gateway(parser)
    parser.add_argument("--output", metavar="FILE", type=Path, help="where it goes (default: stdout, without a token); then: envoy -c FILE")


def run(arguments: Namespace) -> int:
    from wakeful.cluster.gateway.bootstrap import render, render_token  # noqa: PLC0415 - help does without

    try:
        gateway = gateway_of(arguments)
    except Missing as error:
        complain(str(error))
        return WRONG_USE
    output: Path | None = arguments.output
    if output is None:
        if gateway.token is not None:
            complain("Envoy finds a token by a second file, beside its own", ("hint", "--output FILE"))
            return WRONG_USE
        print(render(gateway), end="")
        return DONE
    source = output.absolute().with_name(TOKEN_SOURCE)
    try:
        output.write_text(render(replace(gateway, token_source=source)), encoding="utf-8")
        if gateway.token is not None:
            source.write_text(render_token(gateway.token), encoding="utf-8")
    except OSError as error:
        complain(f"cannot write {error.filename}: {error.strerror}")
        return NO
    return DONE
