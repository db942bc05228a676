"""`wakeful cluster crds`: the kinds Model and Server."""

from argparse import Namespace

from wakeful.cli.cluster_output import printed
from wakeful.cli.parser import DONE, WRONG_USE, Parser


def add_arguments(parser: Parser) -> None:
    parser.epilog = "kubectl apply -f - takes them. They are the cluster's, not a namespace's: it has them once."
    parser.add_argument("--seldon", action="store_true", help="those of Seldon's group (mlops.seldon.io) too; not into a cluster that has Seldon")


def run(arguments: Namespace) -> int:
    from wakeful.cluster.crds import crds  # noqa: PLC0415 - imports the configuration, and help does without

    return DONE if printed(crds(("wakeful", "seldon") if arguments.seldon else ("wakeful",))) else WRONG_USE
