"""The listening socket and the care for all connections."""

import asyncio
import resource
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from wakeful.clock import monotonic
from wakeful.config.settings import ServerSettings
from wakeful.frontends.http.connection import Connection, Route, Shared
from wakeful.frontends.http.patience import Patience

BACKLOG = 4096
AT_ONCE = 64
"""Connections that are taken in a turn of the loop where so many wait. libuv takes one, so that whoever came while thousands were served waited for
seconds, a liveness probe over a new connection too."""
REFUSED_AT_ONCE = 8
"""Of those, connections over the limit: until it has been told so, each holds a descriptor of those that are kept for models."""
HANDSHAKE_SECONDS = 10.0
"""For a client to say who it is, before it counts as a connection."""
LEAST_FOR_MODELS = 48
"""Descriptors."""


def bind(host: str, port: int) -> socket.socket:
    """Take the address before anything is started, so that a busy port costs nothing. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(address)
    return sock


def url_of(sock: socket.socket, *, secure: bool = False) -> str:
    """Where a program on this machine reaches a listening socket."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http{'s' if secure else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def most_connections() -> int:
    """A quarter of the descriptors is for models: without any, no connection is of use."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(limit - max(limit // 4, LEAST_FOR_MODELS), 1)


class HttpServer:
    def __init__(self, find: Callable[[str, str, Mapping[str, str]], Route], settings: ServerSettings, patience: Patience | None = None) -> None:
        self._shared = Shared(
            find, settings.max_body, patience or Patience.of(settings.keep_alive, settings.client_timeout), settings.max_header, settings.max_upload,
            min(settings.max_connections or sys.maxsize, most_connections()),
        )
        self._server: asyncio.Server | None = None
        self._sock: socket.socket
        self._context: ssl.SSLContext | None = None
        self._looking_out = False
        self._arriving: set[asyncio.Task[None]] = set()
        self._care: asyncio.TimerHandle | None = None

    def find_by(self, find: Callable[[str, str, Mapping[str, str]], Route]) -> None:
        """Go over to other routes, or other rules for who may take them. Requests that are under way go on as they began."""
        self._shared.find = find
        self._shared.heads.clear()

    async def start(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Listen; with a context, to HTTPS."""
        self._sock, self._context = sock, context
        self._server = await asyncio.get_running_loop().create_server(self._arrived, sock=sock, backlog=BACKLOG, **self._secrecy())
        self._look_after()

    def _secrecy(self) -> dict[str, Any]:
        if self._context is None:
            return {}
        return {"ssl": self._context, "ssl_handshake_timeout": HANDSHAKE_SECONDS, "ssl_shutdown_timeout": self._shared.patience.leaving}

    def _arrived(self) -> Connection:
        """The loop has taken a connection; where one is, there may be more."""
        if not self._looking_out:
            self._looking_out = True
            asyncio.get_running_loop().call_soon(self._take_more)
        return Connection(self._shared)

    def _take_more(self) -> None:
        self._looking_out = False
        room = self._shared.most_connections + REFUSED_AT_ONCE - len(self._shared.connections) - len(self._arriving)
        for _ in range(0 if self._shared.closing else min(AT_ONCE, room)):
            try:
                sock, _ = self._sock.accept()
            except OSError:  # nobody is there, or no descriptor is left, which the loop will find too
                return
            task = asyncio.get_running_loop().create_task(self._take(sock))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _take(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):  # it has left already, or is no friend of TLS
            await asyncio.get_running_loop().connect_accepted_socket(lambda: Connection(self._shared), sock, **self._secrecy())

    def _look_after(self) -> None:
        now = monotonic()
        for connection in list(self._shared.connections):
            connection.look_after(now)
        self._care = asyncio.get_running_loop().call_later(self._shared.patience.looking, self._look_after)

    def close_listeners(self) -> None:
        """Take no new connections; those that are open stay until their requests are answered, and for a moment in which one may be on its way."""
        if self._server is not None:
            self._server.close()
        self._shared.closing = True
        for connection in list(self._shared.connections):
            connection.finish()

    @property
    def parting(self) -> float:
        """Seconds for which open connections stay once the listeners are closed."""
        return self._shared.patience.parting

    @property
    def connections(self) -> int:
        return len(self._shared.connections)

    @property
    def busy(self) -> int:
        """Requests that are on their way in, not answered, or whose answers are on their way out."""
        return sum(connection.occupied for connection in self._shared.connections)

    def close(self) -> None:
        """Close what is left, its last answer taken or not."""
        if self._care is not None:
            self._care.cancel()
        for connection in list(self._shared.connections):
            connection.abort()
