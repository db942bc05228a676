"""One controller process: the Lease, the leader's work while it has it, and a page for whoever looks after it."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress

from aiohttp import web

from wakeful.cluster.controller.api import Api
from wakeful.cluster.controller.figures import Figures
from wakeful.cluster.controller.leader import Leader
from wakeful.cluster.controller.lease import Lease
from wakeful.cluster.controller.metrics_api import Relay
from wakeful.cluster.controller.settings import Settings
from wakeful.cluster.manifests import CUSTOM_METRICS_PORT
from wakeful.telemetry.logs import Log

STOPPING = (signal.SIGTERM, signal.SIGINT)


class App:
    def __init__(self, settings: Settings, api: Api, log: Log) -> None:
        self._settings, self._api = settings, api
        self._figures = Figures(log)
        self._lease = Lease(api, settings.name, settings.lease, self._figures.say, address=settings.address)
        self._leader: Leader | None = None

    async def run(self) -> None:
        """Until a signal says that it is enough. Raises what the leader's work failed with, OSError when a port is taken."""
        loop = asyncio.get_running_loop()
        pages = web.AppRunner(self._pages(), access_log=None)
        await pages.setup()
        relays: asyncio.Server | None = None
        try:
            await web.TCPSite(pages, self._settings.host, self._settings.http_port).start()
            if self._settings.install.custom_metrics:
                relays = await asyncio.start_server(Relay(lambda: self._lease.address), self._settings.host, CUSTOM_METRICS_PORT)
            work = asyncio.ensure_future(self._lease.run(self._lead))
            for number in STOPPING:
                loop.add_signal_handler(number, work.cancel)
            with suppress(asyncio.CancelledError):
                await work
        finally:
            if relays is not None:
                relays.close()
            await pages.cleanup()
            await self._api.close()

    async def _lead(self, epoch: int) -> None:
        self._figures.epoch.set(epoch)
        self._figures.leads.set(1)
        self._leader = Leader(self._api, self._settings, self._figures, epoch, lambda: self._lease.held)
        try:
            await self._leader.run()
        finally:
            self._leader = None
            self._figures.leads.set(0)

    def _pages(self) -> web.Application:
        pages = web.Application()
        pages.router.add_get("/metrics", self._page(lambda: web.Response(body=self._figures.page(), content_type="text/plain", charset="utf-8")))
        pages.router.add_get("/healthz", self._page(lambda: web.Response(text="ok\n")))
        pages.router.add_get("/readyz", self._page(self._ready))
        return pages

    def _page(self, answer: Callable[[], web.Response]) -> Callable[[web.Request], "asyncio.Future[web.Response]"]:
        async def handle(_: web.Request) -> web.Response:
            return answer()

        return handle  # type: ignore[return-value]  # a coroutine function

    def _ready(self) -> web.Response:
        """A leader is ready once it knows everything, a standby once it knows who leads."""
        if self._leader is not None:
            return web.Response(text="leads\n") if self._leader.ready else web.Response(text="learns how things stand\n", status=503)
        holder = self._lease.holder
        return web.Response(text=f"follows {holder}\n") if holder else web.Response(text="does not know who leads\n", status=503)
