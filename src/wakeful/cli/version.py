"""`wakeful version`: of this program, and with -v of what it runs on."""

import json
import platform
from argparse import Namespace

from wakeful import __version__
from wakeful.cli.parser import DONE, Parser


def add_arguments(parser: Parser) -> None:
    parser.epilog = None
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("-v", "--verbose", action="store_true", help="also Python's version and the system")


def run(arguments: Namespace) -> int:
    more = {"python": platform.python_version(), "system": f"{platform.system()} {platform.release()} {platform.machine()}"}
    if arguments.json:
        print(json.dumps({"wakeful": 1, "kind": "version", "data": {"version": __version__} | more}))
    elif arguments.verbose:
        print(f"wakeful {__version__}, Python {more['python']}, {more['system']}")
    else:
        print(__version__)
    return DONE
