"""Beside Envoy, on loopback: has the requests that Envoy has no cluster for. Nothing of a model that is routed comes here, but gRPC that does not
name it in its metadata."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import aiohttp
import grpc
from aiohttp import web

from wakeful.cluster.gateway.bootstrap import Address, Gateway
from wakeful.cluster.gateway.catalog import Catalog
from wakeful.cluster.gateway.forwarding import Passage
from wakeful.cluster.gateway.hold import Held, Room
from wakeful.cluster.gateway.http import HttpHelper
from wakeful.cluster.gateway.line import Line
from wakeful.cluster.gateway.rpc import CLIENT_OPTIONS, OPTIONS, RpcHelper
from wakeful.cluster.gateway.waker import Waker

TO_CONTROLLER = (
    ("grpc.max_receive_message_length", 64 << 20),  # a list of all models
    ("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 2000), ("grpc.dns_min_time_between_resolutions_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # else a controller that stands still is left after a minute
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel would wait out the pauses of the one before
)
STOP_SECONDS = 10.0
"""For requests that are under way when the helper is told to stop."""


class Helper:
    """Both servers. `http` and `grpc` are where they listen, for ports that the system has picked."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.http = gateway.helper
        self.grpc = gateway.helper_grpc
        self.held = Held()

    async def run(self, started: asyncio.Event, stop: asyncio.Event) -> None:
        """Serve from `started` until `stop`."""
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            for_wakes, for_lists = (Line(partial(_channel, self._gateway)) for _ in range(2))
            stack.push_async_callback(for_wakes.close)
            stack.push_async_callback(for_lists.close)
            waker = Waker(for_wakes, tasks, self.held)
            catalog = Catalog(for_lists, tasks, ", ".join(map(_text, self._gateway.controllers)))
            envoy = _text(self._gateway.listen._replace(host=_reachable(self._gateway.listen.host)))
            passage = Passage(envoy, waker, catalog, Room())
            session = await stack.enter_async_context(aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(), auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(),
            ))
            through = await stack.enter_async_context(grpc.aio.insecure_channel(envoy, CLIENT_OPTIONS))
            http = web.Server(HttpHelper(passage, session).handle, handler_cancellation=True, access_log=None)
            runner = web.ServerRunner(http, shutdown_timeout=STOP_SECONDS)
            self.http = await _listen_http(runner, self._gateway.helper)
            server = grpc.aio.server(handlers=(RpcHelper(passage, through),), options=OPTIONS)
            self.grpc = self._gateway.helper_grpc._replace(port=server.add_insecure_port(_text(self._gateway.helper_grpc)))
            await server.start()
            started.set()
            await stop.wait()
            await asyncio.gather(runner.cleanup(), server.stop(STOP_SECONDS))


async def _listen_http(runner: web.ServerRunner, address: Address) -> Address:
    await runner.setup()
    await web.TCPSite(runner, address.host, address.port).start()
    return address._replace(port=runner.addresses[0][1])


def _channel(gateway: Gateway, number: int) -> grpc.aio.Channel:
    """To the n-th controller, counted in a circle. Raises OSError where the certificates cannot be read."""
    address = _text(gateway.controllers[number % len(gateway.controllers)])
    options = TO_CONTROLLER + ((("grpc.ssl_target_name_override", gateway.controller_name),) if gateway.controller_name else ())
    if gateway.ca is None:
        return grpc.aio.insecure_channel(address, options)
    credentials = grpc.ssl_channel_credentials(gateway.ca.read_bytes())
    if gateway.token is not None:
        credentials = grpc.composite_channel_credentials(credentials, grpc.metadata_call_credentials(_Shown(gateway.token)))
    return grpc.aio.secure_channel(address, credentials, options)


class _Shown(grpc.AuthMetadataPlugin):  # type: ignore[misc]  # grpcio ships no types
    """Puts the token, as it is now, into the metadata of a call."""

    def __init__(self, token: Path) -> None:
        self._token = token

    def __call__(self, context: object, callback: Callable[[Sequence[tuple[str, str]], Exception | None], None]) -> None:
        try:
            callback((("authorization", f"Bearer {self._token.read_text('utf-8').strip()}"),), None)
        except (OSError, UnicodeDecodeError) as error:
            callback((), error)


def _text(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - every address of this pod is loopback too
