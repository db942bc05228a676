"""`wakeful cluster convert FILE`: Seldon's Models and Servers as ours; everything else of the file as it is."""

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeful.cli.cluster_extra import complain_of_missing
from wakeful.cli.parser import DONE, NO, WRONG_USE, Parser, complain

if TYPE_CHECKING:
    from wakeful.cluster.dialects.seldon import Converted


def add_arguments(parser: Parser) -> None:
    parser.usage = "wakeful cluster convert FILE"
    parser.epilog = "What has no effect here, or cannot be served, is told on stderr; then the exit status is 1 if something cannot be served."
    parser.add_argument("source", type=Path, metavar="FILE", help="YAML with one object or several; - for stdin")


def run(arguments: Namespace) -> int:
    try:
        from wakeful.cluster.documents import read, written  # noqa: PLC0415 - an extra, and help does without
    except ImportError as error:
        return complain_of_missing("what reads manifests", error)
    from wakeful.cluster.dialects.seldon import follow  # noqa: PLC0415 - imports the configuration, and help does without

    source: Path = arguments.source
    try:
        text = sys.stdin.read() if str(source) == "-" else source.read_text("utf-8")
        objects = read(text)
    except (OSError, ValueError) as error:
        complain(f"{source} cannot be read: {getattr(error, 'strerror', None) or error}")
        return WRONG_USE
    made = [follow(one) for one in objects]
    print(written(one.manifest for one in made), end="")
    told = [_tell(before, after) for before, after in zip(objects, made, strict=True)]
    return DONE if all(told) else NO


def _tell(before: dict[str, Any], made: "Converted") -> bool:
    name = f"{before['kind']} {before['metadata']['name']}"
    for error in made.errors:
        complain(f"{name}: {error}")
    for note in made.notes:
        print(f"warning: {name}: {note}", file=sys.stderr)
    return not made.errors
