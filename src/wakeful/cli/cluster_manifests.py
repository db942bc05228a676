"""`wakeful cluster manifests [FILE]`: what an installation is made of, and what a host's file is in a cluster."""

import sys
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeful.cli.cluster_extra import complain_of_missing
from wakeful.cli.cluster_output import printed
from wakeful.cli.parser import DONE, NO, WRONG_USE, Parser, complain

if TYPE_CHECKING:
    from wakeful.cluster.manifests import Install


def add_arguments(parser: Parser) -> None:
    parser.usage = "wakeful cluster manifests [FILE] [option ...]"
    parser.epilog = "kubectl apply -f - takes them. What cannot be as it was on one host is told on stderr."
    parser.add_argument("config", nargs="?", type=Path, metavar="FILE", help="models.toml or models.json of a host, as a Server and Models")
    parser.add_argument("-n", "--namespace", metavar="NAME", default="wakeful", help="where everything is to be (default wakeful)")
    host = parser.add_argument_group("of FILE")
    host.add_argument("--server", metavar="NAME", default="server", help="what the Server is called (default server)")
    host.add_argument("--storage", metavar="URI", help="where the models' files are, as s3://bucket/models (default: where they are here)")
    host.add_argument("--no-install", action="store_true", help="the Server and the Models alone")
    install = parser.add_argument_group("installation")
    install.add_argument("--image", metavar="IMAGE", help="of all but Envoy, with the host of your registry (default wakeful:latest)")
    install.add_argument("--envoy", metavar="IMAGE", help="of Envoy (default envoy:v1.40)")
    install.add_argument("--controllers", metavar="N", type=_count, help="pods of the controller, of which one leads (default 2)")
    install.add_argument("--gateways", metavar="N", type=_count, help="pods of the gateway (default 2)")
    install.add_argument("--seldon", action="store_true", help="Models and Servers of Seldon's group count too; not into a cluster that has Seldon")
    install.add_argument("--custom-metrics", action="store_true", help="the controller answers for custom.metrics.k8s.io; a cluster has one who does")
    install.add_argument("--storage-secrets", action="store_true", help="Models may name Secrets, and the controller read them")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise ArgumentTypeError(f"{text} is not 1 to 100")
    return int(text)


def run(arguments: Namespace) -> int:
    if arguments.no_install and arguments.config is None:
        complain("--no-install without FILE leaves nothing to print")
        return WRONG_USE
    objects: list[dict[str, Any]] = []
    if not arguments.no_install:
        objects += _installation(arguments)
    if arguments.config is not None:
        of_host = _of_host(arguments)
        if of_host is None:
            return NO
        objects += of_host
    return DONE if printed(objects) else WRONG_USE


def _installation(arguments: Namespace) -> list[dict[str, Any]]:
    from wakeful.cluster.crds import crds  # noqa: PLC0415 - imports the configuration, and help does without
    from wakeful.cluster.install import install_objects  # noqa: PLC0415 - as above

    install = _install(arguments)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": install.namespace}}
    return [namespace, *crds(("wakeful", "seldon") if install.seldon else ("wakeful",)), *install_objects(install)]


def _install(arguments: Namespace) -> "Install":
    from wakeful.cluster.manifests import Install  # noqa: PLC0415 - imports the configuration, and help does without

    names = ("namespace", "image", "envoy", "controllers", "gateways", "seldon", "storage_secrets", "custom_metrics")
    return Install(**{name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None})


def _of_host(arguments: Namespace) -> list[dict[str, Any]] | None:
    """None, and complaints, where the file is wrong or cannot be so in a cluster."""
    try:
        from wakeful.cluster.hosted import hosted  # noqa: PLC0415 - imports an extra, and help does without
    except ImportError as error:
        complain_of_missing("what writes manifests", error)
        return None
    from wakeful.config.document import Document, read_document  # noqa: PLC0415 - as above
    from wakeful.config.load import Options, load  # noqa: PLC0415 - as above
    from wakeful.config.problems import ConfigError  # noqa: PLC0415 - as above

    try:
        settings = load(Options(config=arguments.config), {})
    except ConfigError as error:
        print(error, file=sys.stderr)
        return None
    document = read_document(arguments.config)
    assert isinstance(document, Document)
    made = hosted(document, settings, arguments.server, arguments.storage)
    for fault in made.errors:
        complain(fault)
    for note in made.notes:
        print(f"warning: {note}", file=sys.stderr)
    if made.errors:
        return None
    return [{**one, "metadata": {**one["metadata"], "namespace": arguments.namespace}} for one in made.objects]
