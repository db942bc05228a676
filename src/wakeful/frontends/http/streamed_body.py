"""A body that is never held whole: a thread takes it piece by piece, as fast as it can, and the client waits where it is slower."""

import asyncio
from collections.abc import Callable
from typing import Protocol

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

    def __init__(self, sink: Sink, left: int, hold: Callable[[bool], None], over: Callable[[Exception | None], None]) -> None:
        """`left`: bytes that are to come. `hold` is told whether the client has to wait; `over` hears that all has been taken, or why not."""
        self.left = left
        self.received = 0
        self._sink = sink
        self._hold = hold
        self._over = over
        self._waiting: list[bytes] = []
        self._ahead = 0
        self._taking = False
        self._abandoned = False

    def feed(self, data: bytes) -> None:
        """Some more of the body, at most what is left of it."""
        self.left -= len(data)
        self.received += len(data)
        self._ahead += len(data)
        if data:
            self._waiting.append(data)
        if self._ahead > AHEAD:
            self._hold(True)
        self._pass_on()

    def end(self) -> None:
        """What has come was all."""
        self.left = 0
        self._pass_on()

    def abandon(self) -> None:
        self._abandoned = True
        if not self._taking:
            self._sink.abandon()

    def _pass_on(self) -> None:
        if self._taking or self._abandoned:
            return
        if not self._waiting:
            if self.left == 0:
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
            self._pass_on()
