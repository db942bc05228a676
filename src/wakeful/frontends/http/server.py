"""The listening socket and the care for all connections."""

import asyncio
import socket

from wakeful.clock import monotonic
from wakeful.config.settings import ServerSettings
from wakeful.engine import Engine
from wakeful.frontends.http.admin import Spawn
from wakeful.frontends.http.connection import Connection, Shared
from wakeful.frontends.http.routes import Router, table

BACKLOG = 4096
CARE_SECONDS = 5.0
RECEIVE_SECONDS = 60.0
"""A request must arrive whole within this time."""


def bind(host: str, port: int) -> socket.socket:
    """Take the address before anything is started, so that a busy port costs nothing. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(address)
    return sock


class HttpServer:
    def __init__(self, engine: Engine, settings: ServerSettings, spawn: Spawn) -> None:
        self._settings = settings
        self._shared = Shared(Router(table(engine, spawn)).find, settings.max_body)
        self._server: asyncio.Server | None = None
        self._care: asyncio.TimerHandle | None = None

    async def start(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self._shared), sock=sock, backlog=BACKLOG)
        self._care = loop.call_later(CARE_SECONDS, self._look_after)

    def _look_after(self) -> None:
        """Close connections that are idle for too long, or whose requests do not arrive."""
        now = monotonic()
        for connection in list(self._shared.connections):
            quiet = now - connection.since
            if connection.busy:
                continue
            if quiet > (RECEIVE_SECONDS if connection.receiving else self._settings.keep_alive):
                connection.close()
        self._care = asyncio.get_running_loop().call_later(CARE_SECONDS, self._look_after)

    def close_listeners(self) -> None:
        """Take no new connections; those that are open stay until their requests are answered."""
        if self._server is not None:
            self._server.close()
        self._shared.closing = True
        for connection in list(self._shared.connections):
            if not connection.busy and not connection.receiving:
                connection.close()

    @property
    def busy(self) -> int:
        """Requests that are received and not answered."""
        return sum(connection.busy for connection in self._shared.connections)

    def close(self) -> None:
        """Close what is left."""
        if self._care is not None:
            self._care.cancel()
        for connection in list(self._shared.connections):
            connection.close()
