"""Starting the daemon: take the address, tell people what begins here, serve."""

import errno
import os
import shlex
import socket
from argparse import Namespace
from collections.abc import Callable

import psutil
import uvloop

from wakeful.app import App
from wakeful.cli import opening
from wakeful.cli.client import DEFAULT_URL, PREFIX, Failure, client_of
from wakeful.cli.descriptors import allow_descriptors
from wakeful.cli.parser import DONE, WRONG_USE, complain
from wakeful.config.load import take_service
from wakeful.config.service import ServiceSettings
from wakeful.config.settings import Settings
from wakeful.frontends.http.server import bind
from wakeful.frontends.tls import Certificate
from wakeful.telemetry.units import counted, show_seconds

CUT = 1
"""Exit status after requests had to be cut off."""
LONGEST_COMMAND = 120
ANSWER_SECONDS = 5.0
"""For whoever holds the port to say who it is."""


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
    opening.tell(app, sockets)
    return await app.run(*sockets)


def _complain_of_address(host: str, port: int, option: str, error: OSError) -> None:
    address = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        daemon = "" if option == "--grpc-port" else daemon_at(host, port)
        holder = daemon or holder_of(port)
        notes = [("held by", holder)] if holder else []
        other = f"`wakeful ps{_url_option(host, port)}` talks to that one; for another" if daemon else "for a free port"
        without = "; without gRPC: --no-grpc" if option == "--grpc-port" else ""
        complain(f"{address} is already in use", *notes, ("hint", f"{other}: wakeful serve {option} 0{without}"))
    elif error.errno == errno.EACCES:
        complain(f"this user may not listen on {address}", ("hint", "ports from 1024 on are free to use"))
    else:
        complain(f"cannot listen on {address}: {error.strerror}")


def daemon_at(host: str, port: int) -> str:
    """What a Wakeful that listens there says of itself; empty where it is none, or wants a key that we do not have."""
    try:
        client = client_of(Namespace(url=_url(host, port), key_file=None, timeout=ANSWER_SECONDS))
        daemon = client.get(f"{PREFIX}/state")["daemon"]
        models = daemon["models"]["total"]
        return f"wakeful {daemon['version']}, pid {daemon['pid']}, up {show_seconds(daemon['up_seconds'])}, {counted(models, 'model')}"
    except (Failure, KeyError, TypeError):
        return ""


def _url(host: str, port: int) -> str:
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://{f'[{here}]' if ':' in here else here}:{port}"


def _url_option(host: str, port: int) -> str:
    url = _url(host, port)
    return "" if url == DEFAULT_URL else f" --url {url}"


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
