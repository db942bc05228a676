"""Starting the daemon: take the address, tell people what begins here, serve."""

import errno
import resource
import shlex
import socket
from contextlib import suppress

import psutil
import uvloop

from wakeful.app import App
from wakeful.cli import opening
from wakeful.cli.parser import DONE, WRONG_USE, complain
from wakeful.config.settings import ServerSettings, Settings
from wakeful.frontends.http.server import bind

CUT = 1
"""Exit status after requests had to be cut off."""
LONGEST_COMMAND = 120
DESCRIPTORS = 1 << 20
"""More open files than this are never asked for."""


def run(settings: Settings, started: float) -> int:
    try:
        sock = bind(settings.server.host, settings.server.port)
    except OSError as error:
        _complain_of_address(settings.server, error)
        return WRONG_USE
    allow_descriptors()
    return CUT if uvloop.run(_serve(settings, sock, started)) else DONE


def allow_descriptors() -> None:
    """A connection takes one descriptor, a replica six; what shells allow by default is soon used up, and may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _serve(settings: Settings, sock: socket.socket, started: float) -> int:
    app = App(settings, started)
    opening.tell(app, sock)
    return await app.run(sock)


def _complain_of_address(server: ServerSettings, error: OSError) -> None:
    address = f"{server.host}:{server.port}"
    if error.errno == errno.EADDRINUSE:
        holder = holder_of(server.port)
        notes = [("held by", holder)] if holder else []
        complain(f"{address} is already in use", *notes, ("hint", "for a free port: wakeful serve --port 0"))
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
