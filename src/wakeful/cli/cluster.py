"""`wakeful cluster`: the verbs that have to do with Kubernetes."""

from collections.abc import Sequence

from wakeful.cli.verbs import Entry, dispatch, listed

VERBS = {
    "controller": Entry("wakeful.cli.cluster_controller", "decide which server replica has which Model, and see to it"),
    "crds": Entry("wakeful.cli.cluster_crds", "print the kinds Model and Server, for kubectl apply"),
    "manifests": Entry("wakeful.cli.cluster_manifests", "print what an installation is made of, and a host's file as a Server and Models"),
    "drain": Entry("wakeful.cli.cluster_drain", "hold this pod until its models are elsewhere; its PreStop hook"),
    "gateway": Entry("wakeful.cli.cluster_gateway", "start the helper beside a gateway's Envoy"),
    "leave": Entry("wakeful.cli.cluster_leave", "hold a gateway's pod until all that it has is answered; its PreStop hook"),
    "bootstrap": Entry("wakeful.cli.cluster_bootstrap", "print the file that a gateway's Envoy is started with"),
    "convert": Entry("wakeful.cli.cluster_convert", "print manifests of Seldon's as ours"),
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
