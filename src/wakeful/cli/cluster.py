"""`wakeful cluster`: the verbs that have to do with Kubernetes."""

from collections.abc import Sequence

from wakeful.cli.verbs import Entry, dispatch, listed

VERBS = {
    "models": Entry("wakeful.cli.cluster_models", "list the Models of a namespace, and what is wrong with each"),
    "explain": Entry("wakeful.cli.cluster_explain", "say why a Model is where it is, and not elsewhere"),
}
HELP = f"""\
Models and Servers on Kubernetes. docs/cluster.md leads from an empty cluster to one that serves.

{listed("wakeful cluster", VERBS)}

  wakeful cluster VERB --help shows the options.
"""


def main(arguments: Sequence[str], started: float) -> int:
    return dispatch("wakeful cluster", VERBS, HELP, arguments, started)
