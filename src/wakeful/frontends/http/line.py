"""The line to one client, whatever is said on it: what has come, what the client has not taken yet, and an end that lets it read the last word."""

import asyncio
from typing import Any

from wakeful.frontends.http.response import stream_head
from wakeful.tensors import Buffer

BEHIND = 64 * 1024
"""Bytes of an answer without end that a client has not taken: from here on it misses what comes."""
SEALED_PIECE = 256 * 1024
"""Bytes of an answer that are encrypted at once."""


class Line(asyncio.Protocol):
    __slots__ = ("_buffer", "_discarding", "_ended", "_endless", "_paused", "_sealed", "_transport", "_want_close", "_writable")

    def __init__(self) -> None:
        self._transport: Any = None
        self._buffer = b""
        """Received and not yet understood."""
        self._ended = False
        """True when the client sends no more; it may still wait for answers."""
        self._want_close = False
        """True when the next answer is the last one."""
        self._discarding = False
        """True when the last answer is out, and what still comes is only read so that the client gets to see the answer."""
        self._paused = False
        self._writable = True
        self._sealed = False
        """True for TLS."""
        self._endless = False
        """True from the beginning of an answer that has no end. What waits to be taken of it keeps nobody waiting."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._sealed = not self._transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True

    # ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _pause_reading(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def _hold_back(self, wait: bool) -> None:
        """The client has to wait, or not any more."""
        if wait:
            self._pause_reading()
        else:
            self._resume_reading()

    def _hand_over_to(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.pause_reading()  # the loop asks for the kind of protocol when it begins to read
        self._transport.set_protocol(protocol)
        self._paused = False
        self._transport.resume_reading()

    # ── sending ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, body: Buffer) -> None:
        """TLS would hand all of it on, where nobody sees how much the client has taken; after a piece it notices that it has to wait."""
        piece = SEALED_PIECE if self._sealed else len(body)
        for begin in range(0, len(body), piece):
            self._transport.write(body[begin : begin + piece] if len(body) > piece else body)

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken yet."""
        size: int = self._transport.get_write_buffer_size()
        return size

    # ── an answer without end ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin_stream(self) -> None:
        """From here on the answer is what is pushed."""
        self._endless = True
        self._transport.set_write_buffer_limits(high=BEHIND)
        self._transport.write(stream_head())

    @property
    def takes(self) -> bool:
        """False where the client has left, or not taken what it got before."""
        return self._writable and not self._transport.is_closing() and self.unsent < BEHIND

    def push(self, data: bytes) -> bool:
        """Write one more piece. False, and nothing is written, where it `takes` none."""
        if not self.takes:
            return False
        self._transport.write(data)
        return True

    def end(self, data: bytes) -> None:
        """With these last words, if they would not have to wait."""
        self.push(data)
        if self.unsent:
            self.abort()  # it reads too slowly to be waited for
        else:
            self.close()

    # ── ending ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _forget(self) -> None:
        """Nothing that has come or comes counts any more."""
        self._want_close = self._discarding = True
        self._buffer = b""

    def _part(self, patience: float) -> None:
        """Close; but closing over unread bytes would reset the connection, and the client might never see its answer: it has `patience` seconds."""
        unread = self._discarding or bool(self._buffer)
        self._forget()
        if unread and not self._ended:
            if not self._sealed:
                self._transport.write_eof()
            self._resume_reading()
            asyncio.get_running_loop().call_later(patience, self._transport.close)
        else:
            self._transport.close()

    def close(self) -> None:
        self._forget()
        self._transport.close()

    def abort(self) -> None:
        """Close now. (`close` waits until the client has taken what is on its way, and so does the loop when it closes.)"""
        self._want_close = self._discarding = True
        self._transport.abort()
