"""The other way of receiving: a large body goes from the socket straight to where it stays."""

import asyncio
from collections.abc import Callable

import numpy as np

from wakeful.tensors import Buffer


class LargeBody(asyncio.BufferedProtocol):
    """Receives the rest of one large body into a buffer of its size; memory is touched only as bytes arrive."""

    def __init__(self, connection: asyncio.Protocol, received: Callable[[Buffer], None], length: int, first: Buffer) -> None:
        """`received` gets the whole body; the connection takes over again then. Whatever else happens is told to the connection."""
        self._connection = connection
        self._received = received
        self._body = np.empty(length, np.uint8).data  # a bytearray would be filled with zeros first
        self._body[: len(first)] = first
        self._at = len(first)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._body[self._at :]

    def buffer_updated(self, nbytes: int) -> None:
        self._at += nbytes
        if self._at == len(self._body):
            self._received(self._body)

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
