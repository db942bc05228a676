"""All front ends as one: they start together, obey the same rules, and close together."""

import socket
from typing import TYPE_CHECKING

from wakeful.config.load import is_reached_by_others
from wakeful.config.settings import AuthSettings, Role, Settings
from wakeful.engine import Engine
from wakeful.errors import WakefulError
from wakeful.frontends.access import Access
from wakeful.frontends.http.admin import Spawn
from wakeful.frontends.http.guard import Guard
from wakeful.frontends.http.insight import InsightHandlers
from wakeful.frontends.http.openapi import described
from wakeful.frontends.http.routes import Router, pages, table
from wakeful.frontends.http.server import HttpServer
from wakeful.frontends.tls import Certificate
from wakeful.insight.stream import Stream
from wakeful.insight.watch import Watch

if TYPE_CHECKING:
    from wakeful.frontends.grpc.server import GrpcServer


class Doors:
    def __init__(
        self, engine: Engine, spawn: Spawn, settings: Settings, certificate: Certificate | None = None, watch: Watch | None = None
    ) -> None:
        self._engine = engine
        self._watch = watch
        self._stream = None if watch is None else Stream(watch)
        self._spawn = spawn
        self._certificate = certificate
        self._server = settings.server
        self._http = HttpServer(self._router(settings.auth).find, settings.server)
        self._grpc: GrpcServer | None = None
        self._strangers = is_reached_by_others(settings.server.host) and not settings.server.insecure
        if settings.server.grpc_port is not None:
            from wakeful.frontends.grpc import methods, server  # noqa: PLC0415 - takes libraries that nobody else needs

            self._grpc = server.GrpcServer(
                methods.table(engine, spawn), Access(settings.auth), self._refused, settings.server.max_body, settings.server.client_timeout,
                certificate, strangers=self._strangers,
            )

    def _router(self, auth: AuthSettings) -> Router:
        access = Access(auth)
        insight = InsightHandlers(self._watch, self._stream, access)
        routes = table(self._engine, self._spawn, Role.ADMIN if auth.protect_metrics else None, insight)
        guard = Guard((self._server.host, *self._server.allowed_hosts))
        return Router([*described(routes, secured=auth.enabled), *pages()], access, self._refused, guard)

    def _refused(self, error: WakefulError) -> None:
        self._engine.events.emit("refuse", "", f"a caller: {error.message}", code=error.code)

    def admit_by(self, auth: AuthSettings) -> None:
        """Go over to other rules for who may do what."""
        self._http.find_by(self._router(auth).find)
        self._say_bye("keys")
        if self._grpc is not None:
            self._grpc.admit_by(Access(auth))

    async def start(self, http: socket.socket, grpc: socket.socket | None) -> None:
        """Listen. `grpc` only holds an address for the library that listens there by itself."""
        if grpc is not None:
            assert self._grpc is not None
            with grpc:
                await self._grpc.start(*grpc.getsockname()[:2])
            if self._certificate is None and not self._strangers and self._grpc.library == "grpcio":
                text = "pygrpc-native is not installed: grpcio serves gRPC, at several times the processor time of a call"
                self._engine.events.emit("config", "", text, code="grpc_library")
        await self._http.start(http, self._certificate.context if self._certificate is not None else None)

    @property
    def grpc_library(self) -> str | None:
        """What serves gRPC; None: nothing does."""
        return None if self._grpc is None else self._grpc.library

    @property
    def busy(self) -> int:
        """Requests that are on their way in, not answered, or whose answers are on their way out."""
        return self._http.busy + (self._grpc.busy if self._grpc is not None else 0)

    @property
    def parting(self) -> float:
        """Seconds for which open connections stay once the listeners are closed."""
        return self._http.parting

    def close_listeners(self) -> None:
        """Take no new connections, or refuse their calls; finish what is here."""
        self._say_bye("stopping")
        self._http.close_listeners()
        if self._grpc is not None:
            self._grpc.close_listeners()

    def _say_bye(self, reason: str) -> None:
        if self._stream is not None:
            self._stream.close(reason)

    async def close(self) -> None:
        """Close what is left, its last answer taken or not."""
        self._http.close()
        if self._grpc is not None:
            await self._grpc.close()
