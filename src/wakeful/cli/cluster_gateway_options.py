"""Options that a gateway's two parts share, Envoy's file and the helper: they meet on the ports that both are told."""

import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from wakeful.cli.parser import Parser, port

if TYPE_CHECKING:
    from wakeful.cluster.gateway.bootstrap import Gateway

CONTROLLERS, CA_FILE, TOKEN_FILE = "WAKEFUL_CLUSTER_CONTROLLERS", "WAKEFUL_CLUSTER_CA_FILE", "WAKEFUL_CLUSTER_TOKEN_FILE"
POD = "POD_NAME"
"""Variables, the same as a daemon's in a cluster."""


class Missing(Exception):
    """Something that has no default."""


def add_arguments(parser: Parser) -> None:
    parser.epilog = None  # the file of a daemon has no say
    controller = parser.add_argument_group("controller")
    controller.add_argument(
        "--controllers", metavar="HOST:PORT,...",
        help=f"whom to ask; of several, or of a name with several addresses, one leads (default: {CONTROLLERS})",
    )
    controller.add_argument(
        "--ca-file", metavar="FILE", type=Path, help=f"certificates that vouch for it, in PEM (default: {CA_FILE}; none: plain text)",
    )
    controller.add_argument(
        "--token-file", metavar="FILE", type=Path, help=f"shows it who this is, over TLS alone (default: {TOKEN_FILE}; none: nothing is shown)",
    )
    controller.add_argument("--controller-name", metavar="NAME", help="what its certificate says (default: as it is reached)")
    parser.add_argument_group("gateway").add_argument(
        "--name", metavar="NAME", help=f"another one for each gateway: the controller waits for each (default: {POD}, else the host's name)",
    )
    listening = parser.add_argument_group("listening")
    listening.add_argument("--host", metavar="ADDRESS", default="0.0.0.0", help="for requests and for --stats-port (default all)")  # noqa: S104 - in a pod
    for option, default, what in (
        ("--port", 8080, "of Envoy, for requests"), ("--stats-port", 9902, "of Envoy, for /ready and /stats/prometheus"),
        ("--admin-port", 9901, "of Envoy's admin interface, on loopback"), ("--helper-port", 8081, "of the helper, on loopback"),
        ("--helper-grpc-port", 8082, "of the helper, on loopback"),
    ):
        listening.add_argument(option, metavar="PORT", type=port, default=default, help=f"{what} (default {default})")


def gateway_of(arguments: Namespace) -> "Gateway":
    """Raises Missing, with what to do."""
    from wakeful.cluster.gateway.bootstrap import Address, Gateway  # noqa: PLC0415 - help does without

    text = arguments.controllers or os.environ.get(CONTROLLERS, "")
    if not text:
        raise Missing(f"no controller is named: --controllers HOST:PORT, or the variable {CONTROLLERS}")
    loopback = "127.0.0.1"
    return Gateway(
        node=arguments.name or os.environ.get(POD) or os.uname().nodename,
        controllers=tuple(Address(*_host_and_port(one.strip())) for one in text.split(",")),
        listen=Address(arguments.host, arguments.port), stats=Address(arguments.host, arguments.stats_port),
        admin=Address(loopback, arguments.admin_port), helper=Address(loopback, arguments.helper_port),
        helper_grpc=Address(loopback, arguments.helper_grpc_port), controller_name=arguments.controller_name,
        ca=arguments.ca_file or _path_in(CA_FILE), token=arguments.token_file or _path_in(TOKEN_FILE),
    )


def _path_in(variable: str) -> Path | None:
    text = os.environ.get(variable, "")
    return Path(text) if text else None


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Missing(f"a controller is written HOST:PORT, as in wakeful-controller:9100, and one is {text!r}")
    return host.strip("[]"), int(port)
