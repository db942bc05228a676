"""custom.metrics.k8s.io by the controller, for HorizontalPodAutoscalers that go by requests: a cluster without Prometheus and its adapter has it too.

The API server has asked who the caller is and whether he may, before it passes a request on (the aggregation layer). So it alone is let in: TLS asks
for the certificate that it shows as a front proxy, signed by the authority that it publishes. Its callers' tokens never come here. The key and the
certificate of this side live as long as this process leads, and the authority that vouches for them is written into our APIService.
"""

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from aiohttp import web

from wakeful import clock
from wakeful.cluster.controller import tls
from wakeful.cluster.controller.api import API_SERVICE, CONFIG_MAP, Kind, Manifest, Refusal
from wakeful.cluster.controller.metrics_values import Answer, refusal
from wakeful.cluster.install import FRONT_PROXY, METRICS_SERVICE
from wakeful.cluster.manifests import CUSTOM_METRICS, CUSTOM_METRICS_LEADER

SYSTEM = "kube-system"
REFRESH = 60.0
"""Seconds between two looks at who may ask and at our APIService."""
AGAIN = 5.0
"""Seconds after which what was refused is tried again."""


class Caller(NamedTuple):
    """The API server as a front proxy."""

    authority: str
    names: frozenset[str]
    """Common names that its certificate may have; empty: any."""


class Store(Protocol):
    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Manifest | None: ...

    async def patch(self, kind: Kind, name: str, body: Manifest) -> Manifest: ...


class MetricsApi:
    """`values` answers a GET of this path and query."""

    def __init__(self, store: Store, host: str, namespace: str, values: Callable[[str], Answer], complain: Callable[[str], None]) -> None:
        self._store, self._host, self._namespace, self._values, self._complain = store, host, namespace, values, complain
        self._wrong = ""

    async def run(self) -> None:
        pem = await asyncio.to_thread(tls.make, tls.names_of(CUSTOM_METRICS, self._namespace), datetime.fromtimestamp(clock.wall(), UTC))
        caller: Caller | None = None
        served: web.AppRunner | None = None
        try:
            while True:
                try:
                    found = caller_of(await self._store.get(CONFIG_MAP, FRONT_PROXY, SYSTEM))
                    if found != caller:
                        if served is not None:
                            await served.cleanup()
                        served, caller = await self._serve(pem, found), found
                    await self._vouch(pem)
                    self._wrong, pause = "", REFRESH
                except (Refusal, ValueError) as error:
                    self._tell(f"custom metrics: {error}")
                    pause = AGAIN
                await asyncio.sleep(pause)
        finally:
            if served is not None:
                await served.cleanup()

    def _tell(self, wrong: str) -> None:
        """Once in a row."""
        if wrong != self._wrong:
            self._complain(wrong)
        self._wrong = wrong

    async def _serve(self, pem: tls.Pem, caller: Caller) -> web.AppRunner:
        async def handle(request: web.Request) -> web.Response:
            name = _common_name(request)
            if caller.names and name not in caller.names:
                found = refusal(403, "Forbidden", f"the certificate is {name}'s, and the API server's are {', '.join(sorted(caller.names))}")
            else:
                found = self._values(request.path_qs)
            return web.json_response(found.body, status=found.code)

        pages = web.Application()
        pages.router.add_get("/{path:.*}", handle)
        runner = web.AppRunner(pages, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, self._host, CUSTOM_METRICS_LEADER, ssl_context=context_of(pem, caller)).start()
        return runner

    async def _vouch(self, pem: tls.Pem) -> None:
        """Have the API server trust this certificate; only if the APIService is ours. Raises Refusal, ValueError."""
        there = await self._store.get(API_SERVICE, METRICS_SERVICE)
        if there is None:
            raise ValueError(f"there is no APIService {METRICS_SERVICE}; wakeful cluster manifests --custom-metrics has it")
        service = there["spec"].get("service") or {}
        if (service.get("namespace"), service.get("name")) != (self._namespace, CUSTOM_METRICS):
            rival = f"{service.get('namespace')}/{service.get('name')}"
            raise ValueError(f"the APIService {METRICS_SERVICE} is served by {rival}, and a cluster has one who does: remove that one, or leave "
                             "--custom-metrics out")
        bundle = base64.b64encode(pem.authority).decode()
        if there["spec"].get("caBundle") != bundle:
            version = {"resourceVersion": there["metadata"]["resourceVersion"]}
            await self._store.patch(API_SERVICE, METRICS_SERVICE, {"metadata": version, "spec": {"caBundle": bundle}})


def caller_of(published: Manifest | None) -> Caller:
    """Raises ValueError where the API server publishes no front proxy's authority."""
    data = (published or {}).get("data") or {}
    authority = data.get("requestheader-client-ca-file") or ""
    if not authority:
        raise ValueError(f"the ConfigMap {FRONT_PROXY} in {SYSTEM} has no requestheader-client-ca-file: without an aggregation layer "
                         "nobody can be let in")
    names = json.loads(data.get("requestheader-allowed-names") or "[]")
    return Caller(authority, frozenset(names))


def context_of(pem: tls.Pem, caller: Caller) -> ssl.SSLContext:
    """Whoever shows no certificate of this caller's gets no further than the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory() as directory:  # ssl takes a chain from files alone
        for name, text in (("certificate", pem.certificate), ("key", pem.key)):
            (Path(directory) / name).touch(0o600)
            (Path(directory) / name).write_bytes(text)
        context.load_cert_chain(f"{directory}/certificate", f"{directory}/key")
    context.load_verify_locations(cadata=caller.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _common_name(request: web.Request) -> str:
    shown = request.get_extra_info("peercert") or {}
    return next((value for part in shown.get("subject", ()) for key, value in part if key == "commonName"), "")


# ── to the leader ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Relay:
    """What the API server sends to any of the controllers goes on to the one that leads, byte by byte: a Service has no word for the leader, and TLS
    ends there."""

    def __init__(self, leader: Callable[[], str]) -> None:
        """`leader`: its address, empty while there is none; then the connection is closed, and the API server says 503."""
        self._leader = leader

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                if address := self._leader():
                    to_reader, to_writer = await asyncio.open_connection(address, CUSTOM_METRICS_LEADER)
                    await asyncio.gather(_pass(reader, to_writer), _pass(to_reader, writer))
        finally:
            writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until either side ends."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
