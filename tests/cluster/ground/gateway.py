"""A gateway as in its pod: a real Envoy, and the helper in a thread of the test's process."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.brokers import free_port
from tests.cluster.ground.envoy import Envoy, gateway
from wakeful.cluster.gateway.bootstrap import Address
from wakeful.cluster.gateway.helper import Helper

FREE = Address("127.0.0.1", 0)


class GatewayPod:
    def __init__(self, directory: Path, *controllers: str, node: str = "gw-0", **more: Any) -> None:
        """`more`: of the gateway's settings."""
        settings = gateway(node, *controllers, listen=FREE._replace(port=free_port()), helper=FREE, helper_grpc=FREE, **more)
        self.helper = Helper(settings)
        self._loop = asyncio.new_event_loop()
        self._started, self._stop = asyncio.Event(), asyncio.Event()
        up = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(up,), daemon=True)
        self._thread.start()
        assert up.wait(10)
        self.envoy = Envoy(directory, replace(settings, helper=self.helper.http, helper_grpc=self.helper.grpc))

    @property
    def url(self) -> str:
        return self.envoy.url

    @property
    def address(self) -> str:
        return self.envoy.address

    def held(self) -> int:
        """Requests that wait for a model to wake."""
        return len(self.helper.held)

    def stop(self) -> None:
        self.envoy.stop()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _run(self, up: threading.Event) -> None:
        async def main() -> None:
            running = asyncio.create_task(self.helper.run(self._started, self._stop))
            await self._started.wait()
            up.set()
            await running

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(main())
