"""A body that is never held whole: a thread takes it piece by piece, as fast as it can, and the client waits where it is slower."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from wakeful.frontends.http.chunked_body import ChunkedBody

AHEAD = 4 * 1024 * 1024
"""Bytes that may wait for the thread before the client has to."""


class Sink(Protocol):
    """Where a body goes."""

    def take(self, data: bytes) -> None:
        """One more piece; in a thread, and never two at once. What it raises refuses the request."""

    def complete(self) -> None:
        """The body is whole. It answers now or later."""

    def abandon(self) -> None:
        """Nothing more comes: the client has left, or was refused."""


class StreamedBody:
    """Between a connection, which calls this in the loop, and a sink. A sink is either completed or abandoned, once, and not while it takes."""

    def __init__(
        self, sink: Sink, extent: int | ChunkedBody, hold: Callable[[bool], None], over: Callable[[Exception | None], None]
    ) -> None:
        """`extent`: bytes of the body, or what tells its end. `hold` is told whether the client has to wait; `over` hears that all has been taken, or
        why not."""
        self.received = 0
        self._extent = extent
        self._whole = False
        self._sink = sink
        self._hold = hold
        self._over = over
        self._waiting: list[bytes] = []
        self._ahead = 0
        self._taking = False
        self._abandoned = False

    def feed(self, data: bytes) -> bytes | None:
        """Keep the body's part of `data`, until it is passed on. Returns what follows the body once that is whole, None before; raises what is wrong
        with its chunks."""
        piece, rest = self._split(data)
        self.received += len(piece)
        self._ahead += len(piece)
        if piece:
            self._waiting.append(piece)
        self._whole = rest is not None
        return rest

    def _split(self, data: bytes) -> tuple[bytes, bytes | None]:
        if isinstance(self._extent, int):
            left = self._extent - self.received
            return data[:left], data[left:] if len(data) >= left else None
        rest = self._extent.feed(data)
        piece = bytes(self._extent.body)
        self._extent.body.clear()
        return piece, rest

    def abandon(self) -> None:
        self._abandoned = True
        if not self._taking:
            self._sink.abandon()

    def pass_on(self) -> None:
        """Give the sink what it has not got, once it has taken what it has."""
        if self._abandoned:
            return
        if self._ahead > AHEAD:
            self._hold(True)
        if self._taking:
            return
        if not self._waiting:
            if self._whole:
                self._over(None)
            return
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._taking = True
        taken = asyncio.get_running_loop().run_in_executor(None, self._sink.take, data)
        taken.add_done_callback(lambda future: self._taken(future, len(data)))

    def _taken(self, future: "asyncio.Future[None]", size: int) -> None:
        self._taking = False
        self._ahead -= size
        error = None if future.cancelled() else future.exception()
        if self._abandoned:
            self._sink.abandon()
        elif isinstance(error, Exception):
            self._over(error)
        else:
            self._hold(self._ahead > AHEAD)
            self.pass_on()
