"""`wakeful cluster controller`: the process that decides which server replica has which Model."""

import argparse
import os
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from wakeful.cli.cluster_extra import complain_of_missing
from wakeful.cli.parser import DONE, NO, WRONG_USE, Parser, complain, port

if TYPE_CHECKING:
    from wakeful.cluster.controller.settings import Settings

NAMESPACE, POD, ADDRESS = "POD_NAMESPACE", "POD_NAME", "POD_IP"
"""Variables that a pod has from Kubernetes."""


def add_arguments(parser: Parser) -> None:
    parser.epilog = None  # neither variables nor a file of ours has a say
    parser.add_argument("-n", "--namespace", metavar="NAME", help=f"the one that it serves (default: {NAMESPACE}, else the kubeconfig's)")
    parser.add_argument("--kubeconfig", metavar="FILE", help="the cluster and who asks (default: the pod's own account, KUBECONFIG, ~/.kube/config)")
    parser.add_argument("--image", metavar="IMAGE", help="of Servers that name none (default: this pod's own)")
    parser.add_argument("--seldon", action="store_true", help="Models and Servers of Seldon's group count too")
    parser.add_argument("--storage-secrets", action="store_true", help="Models may name Secrets with the keys of their storage")
    parser.add_argument(
        "--custom-metrics", action="store_true", help="answer for custom.metrics.k8s.io, on ports 9103 and 9104; a cluster has one who does")
    listening = parser.add_argument_group("listening")
    listening.add_argument("--host", metavar="ADDRESS", default="0.0.0.0", help="address to listen on (default all)")  # noqa: S104 - in a pod
    listening.add_argument("--port", metavar="PORT", type=port, default=9100, help="for agents and gateways, while it leads (default 9100)")
    listening.add_argument("--http-port", metavar="PORT", type=port, default=9102, help="of /metrics, /healthz and /readyz (default 9102)")
    listening.add_argument("--tls-cert", metavar="FILE", type=Path, help="certificate in PEM, with the chain behind it (default: it makes one)")
    listening.add_argument("--tls-key", metavar="FILE", type=Path, help="its key")
    listening.add_argument("--insecure", action="store_true", help="without TLS, for loopback")
    parser.add_argument_group("leading").add_argument(
        "--lease-seconds", metavar="SECONDS", type=_seconds, default=15.0, help="after so long without a sign another one leads (default 15)")
    parser.add_argument_group("servers").add_argument(
        "--server-window", metavar="SECONDS", type=_seconds, default=300.0,
        help="for so long the last server must have been dispensable before the scheduler takes it away (default 300)")
    parser.add_argument_group("log").add_argument(
        "--log-format", choices=("text", "json"), default="text", help="lines for people or for programs (default text)")


def run(arguments: Namespace) -> int:
    try:
        import lightkube  # noqa: F401, PLC0415 - an extra, and help does without
    except ImportError as error:
        return complain_of_missing("what speaks to Kubernetes", error)
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        complain("--tls-cert and --tls-key belong together, and one of them is missing")
        return WRONG_USE
    if arguments.insecure and arguments.host not in {"127.0.0.1", "::1", "localhost"}:
        complain(f"--insecure is for loopback, and --host is {arguments.host}: agents' tokens would be read", ("hint", "--host 127.0.0.1"))
        return WRONG_USE
    return _serve(arguments)


def _serve(arguments: Namespace) -> int:
    import uvloop  # noqa: PLC0415 - help does without

    from wakeful.cluster.controller.api import NoAccess, Refusal  # noqa: PLC0415 - an extra, and help does without

    try:
        return uvloop.run(_start(arguments))
    except NoAccess as error:
        complain(f"no cluster is known: {error}", ("hint", "--kubeconfig FILE, or the variable KUBECONFIG"))
        return WRONG_USE
    except Refusal as error:
        complain(f"{error}", ("hint", "is the cluster up, and the kubeconfig's the right one?"))
        return NO
    except OSError as error:
        complain(f"cannot listen: {error}", ("hint", "--port and --http-port choose other ports"))
        return WRONG_USE


async def _start(arguments: Namespace) -> int:
    from wakeful.cluster.controller.api import Api  # noqa: PLC0415 - an extra, and help does without
    from wakeful.cluster.controller.app import App  # noqa: PLC0415 - as above
    from wakeful.cluster.controller.preflight import look, own_image  # noqa: PLC0415 - as above
    from wakeful.telemetry.logs import Log, capture_logging  # noqa: PLC0415 - help does without

    api = Api(arguments.namespace or os.environ.get(NAMESPACE), arguments.kubeconfig)
    settings = _settings(arguments, api.namespace, arguments.image or await own_image(api, os.environ.get(POD)))
    if (fault := await look(api, settings.install)) is not None:
        complain(fault.message, *fault.notes)
        return WRONG_USE
    log = Log(format=settings.log_format)
    capture_logging(log)
    log.write("ready", "controller", f"serves the namespace {api.namespace} as {settings.name} ({time.monotonic() - arguments.started:.1f} s)")
    try:
        await App(settings, api, log).run()
    finally:
        log.close()
    return DONE


def _settings(arguments: Namespace, namespace: str, image: str) -> "Settings":
    from wakeful.cluster.controller.lease import LeaseConfig  # noqa: PLC0415 - an extra, and help does without
    from wakeful.cluster.controller.settings import Certificate, Settings  # noqa: PLC0415 - as above
    from wakeful.cluster.manifests import Install  # noqa: PLC0415 - as above
    from wakeful.cluster.planning.limits import Limits  # noqa: PLC0415 - as above
    from wakeful.cluster.planning.servers import ServerLimits  # noqa: PLC0415 - as above

    return Settings(
        install=Install(
            namespace=namespace, image=image, seldon=arguments.seldon, storage_secrets=arguments.storage_secrets,
            custom_metrics=arguments.custom_metrics,
        ),
        name=f"{os.environ.get(POD) or os.uname().nodename}-{os.urandom(4).hex()}",
        kubeconfig=arguments.kubeconfig,
        address=arguments.host if arguments.host != "0.0.0.0" else os.environ.get(ADDRESS, ""),  # noqa: S104 - is compared
        host=arguments.host, port=arguments.port, http_port=arguments.http_port,
        lease=LeaseConfig.lasting(arguments.lease_seconds),
        limits=Limits(servers=ServerLimits(window=arguments.server_window)),
        insecure=arguments.insecure,
        certificate=Certificate(arguments.tls_cert, arguments.tls_key) if arguments.tls_cert is not None else None,
        log_format=arguments.log_format,
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"expected seconds from 1 to 3600, got {text}")
    return seconds
