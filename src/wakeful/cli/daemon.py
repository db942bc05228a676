"""Starting the daemon: take the address, tell people what begins here, serve."""

import errno
import os
import shlex
import socket
from collections.abc import Callable

import psutil
import uvloop

from wakeful.app import App
from wakeful.cli import opening
from wakeful.cli.descriptors import allow_descriptors
from wakeful.cli.parser import DONE, WRONG_USE, complain
from wakeful.config.load import take_service
from wakeful.config.service import ServiceSettings
from wakeful.config.settings import Settings
from wakeful.frontends.http.server import bind
from wakeful.frontends.tls import Certificate

CUT = 1
"""Exit status after requests had to be cut off."""
LONGEST_COMMAND = 120


def run(settings: Settings, started: float, reread: Callable[[], Settings]) -> int:
    tls = settings.server.tls
    try:
        certificate = Certificate(tls) if tls is not None else None
    except OSError as error:
        complain(f"{error}", ("tls_cert", str(tls and tls.certificate)), ("tls_key", str(tls and tls.key)))
        return WRONG_USE
    sockets = []
    for option, port in (("--port", settings.server.port), ("--grpc-port", settings.server.grpc_port)):
        if port is not None:
            try:
                sockets.append(bind(settings.server.host, port))
            except OSError as error:
                _complain_of_address(settings.server.host, port, option, error)
                return WRONG_USE
    allow_descriptors()
    service = take_service()
    if settings.cluster is not None:  # what gRPC does in a child between fork and exec killed one in ten of those that fetch models
        os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    return CUT if uvloop.run(_serve(settings, sockets, started, reread, certificate, service)) else DONE


async def _serve(
    settings: Settings, sockets: list[socket.socket], started: float, reread: Callable[[], Settings], certificate: Certificate | None,
    service: ServiceSettings,
) -> int:
    app = App(settings, started, reread, certificate, service)
    opening.tell(app, sockets[0])
    return await app.run(*sockets)


def _complain_of_address(host: str, port: int, option: str, error: OSError) -> None:
    address = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        holder = holder_of(port)
        notes = [("held by", holder)] if holder else []
        without = "; without gRPC: --no-grpc" if option == "--grpc-port" else ""
        complain(f"{address} is already in use", *notes, ("hint", f"for a free port: wakeful serve {option} 0{without}"))
    elif error.errno == errno.EACCES:
        complain(f"this user may not listen on {address}", ("hint", "ports from 1024 on are free to use"))
    else:
        complain(f"cannot listen on {address}: {error.strerror}")


def holder_of(port: int) -> str:
    """Pid and command of the process that listens on a TCP port; empty when it is another user's, or cannot be found."""
    try:
        listening = (one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid)
        pid = next((one.pid for one in listening), None)
        if pid is None:
            return ""
        command = shlex.join(psutil.Process(pid).cmdline())
    except (OSError, psutil.Error):
        return ""
    return f"pid {pid}, {command[:LONGEST_COMMAND]}"
