"""`wakeful config schema`."""

import json
from argparse import Namespace

from wakeful.cli.parser import DONE, Parser
from wakeful.config.json_schema import json_schema


def add_arguments(parser: Parser) -> None:
    parser.epilog = None


def run(_: Namespace) -> int:
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return DONE
