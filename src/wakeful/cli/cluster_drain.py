"""`wakeful cluster drain`: the PreStop hook of a Server's pods. Asks the agent, and returns when the pod may end."""

import json
import os
import socket
from argparse import Namespace
from pathlib import Path

from wakeful.cli.parser import DONE, NO, Parser, complain
from wakeful.config.cluster import NAMES
from wakeful.config.schema import ClusterTable

PATIENCE = 10.0
"""Seconds; the agent tells how it goes every second."""


def add_arguments(parser: Parser) -> None:
    usual = next((os.environ[name] for name in NAMES["socket"] if os.environ.get(name)), ClusterTable.model_fields["socket"].default)
    parser.add_argument("--socket", type=Path, metavar="FILE", default=Path(usual), help=f"where the agent listens (default {usual})")


def run(arguments: Namespace) -> int:
    path: Path = arguments.socket
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        try:
            connection.connect(str(path))
            with connection.makefile("r", encoding="utf-8") as lines:
                for line in lines:
                    if _tell(json.loads(line)):
                        return DONE
        except (OSError, ValueError) as error:
            hint = "[cluster] socket of the daemon's configuration says where it listens"
            complain(f"the agent at {path} cannot be asked: {error}", ("hint", hint))
            return NO
    complain(f"the agent at {path} has ended before it said that the pod may")
    return NO


def _tell(word: dict[str, object]) -> bool:
    """Show how it goes; True when it is over."""
    if over := word["over"]:
        print(f"{word['seconds']} s: {over}", flush=True)
        return True
    print(f"{word['seconds']} s: {word['left']} models have callers here still", flush=True)
    return False
