"""`wakeful config schema`."""

import sys
from argparse import Namespace

from wakeful.cli.parser import DONE, Parser
from wakeful.config.json_schema import page


def add_arguments(parser: Parser) -> None:
    parser.epilog = None


def run(_: Namespace) -> int:
    sys.stdout.write(page())
    return DONE
