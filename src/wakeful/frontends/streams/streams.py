"""All streams of the daemon: they come, change and go as the configuration says, and end with the daemon."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from wakeful.config.settings import ServerSettings, StreamSettings
from wakeful.engine import Engine
from wakeful.frontends.streams.broker import broker_of
from wakeful.frontends.streams.messages import Form, Json
from wakeful.frontends.streams.stream import Stream


class Streams:
    def __init__(self, engine: Engine, server: ServerSettings, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._engine = engine
        self._server = server
        self._spawn = spawn
        self._consumer = f"wakeful-{socket.gethostname()}-{server.port}"
        """The same after a restart, and another one for each daemon of a machine."""
        self._streams: dict[str, Stream] = {}
        self._stopping = False

    @property
    def open(self) -> int:
        """Streams that have not ended."""
        return sum(not stream.gone.is_set() for stream in self._streams.values())

    @property
    def busy(self) -> int:
        """Messages in hand."""
        return sum(stream.stats.in_flight for stream in self._streams.values())

    async def apply(self, wanted: Iterable[StreamSettings]) -> None:
        """Go over to these. One that changes finishes what it has in hand before it begins anew."""
        by_name = {settings.name: settings for settings in wanted}
        leaving = [stream for name, stream in self._streams.items() if stream.settings != by_name.get(name)]
        for stream in leaving:
            stream.stop()
        if leaving:
            await asyncio.wait([asyncio.ensure_future(stream.gone.wait()) for stream in leaving], timeout=self._server.grace)
        for stream in leaving:
            stream.abandon()
            await stream.gone.wait()
            del self._streams[stream.settings.name]
        for name, settings in by_name.items():
            if name not in self._streams and not self._stopping:
                self._begin(settings)

    def _begin(self, settings: StreamSettings) -> None:
        stats = self._engine.metrics.stream(settings.name)
        make_broker = partial(broker_of, settings, self._consumer)
        stream = self._streams[settings.name] = Stream(settings, make_broker, _form(settings), self._engine, stats, self._server.max_body)
        self._spawn(stream.run())

    def stop(self) -> None:
        self._stopping = True
        for stream in self._streams.values():
            stream.stop()

    def abandon(self) -> None:
        for stream in self._streams.values():
            stream.abandon()


def _form(settings: StreamSettings) -> Form:
    if settings.format == "json":
        return Json()
    from wakeful.frontends.streams.protobuf import Protobuf  # noqa: PLC0415 - imports Google's library

    return Protobuf()
