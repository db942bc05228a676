"""Telling the service manager what becomes of the daemon: sd_notify(3), which is a datagram to a socket that it named."""

import asyncio
import socket
from collections.abc import Callable

from wakeful.clock import monotonic
from wakeful.config.service import ServiceSettings

STATUS_SECONDS = 1.0
"""A status that has changed is told this often."""


class Service:
    """What was told, in the order in which a service lives: ready, reloading and ready again, stopping. Never blocks, and never fails.

    What the socket does not take goes out with the next message. Without an address all of this does nothing.
    """

    def __init__(self, settings: ServiceSettings, status: Callable[[], str]) -> None:
        """`status` says in a few words how the daemon is."""
        self._status = status
        self._watchdog = settings.watchdog
        self._told = ""
        self._owed: dict[str, str] = {}
        self._stopping = False
        self._socket: socket.socket | None = None
        if settings.address is not None:
            self._address = "\0" + settings.address[1:] if settings.address.startswith("@") else settings.address
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)

    @property
    def wanted(self) -> bool:
        """Is there somebody who listens?"""
        return self._socket is not None

    def ready(self) -> None:
        """The daemon serves, with the configuration that it was told last."""
        if self.wanted and not self._stopping:
            self._owed.pop("RELOADING", None)
            self._tell(READY="1", STATUS=self._new_status())

    def reloading(self) -> None:
        """The configuration is read again; `ready` ends it."""
        if not self._stopping:
            self._owed.pop("READY", None)
            self._tell(RELOADING="1", MONOTONIC_USEC=str(int(monotonic() * 1e6)))

    def stopping(self, text: str) -> None:
        self._stopping, self._told = True, text
        self._tell(STOPPING="1", STATUS=text)

    async def run(self) -> None:
        """Give signs of life, twice in the time that is allowed without one, and tell the status when it has changed.

        A task of the daemon's own loop: a loop that hangs gives none. Ends when it is cancelled.
        """
        period = STATUS_SECONDS if self._watchdog is None else min(STATUS_SECONDS, self._watchdog / 2)
        while True:
            signs = {} if self._watchdog is None else {"WATCHDOG": "1"}
            if not self._stopping and self._status() != self._told:
                signs["STATUS"] = self._new_status()
            self._tell(**signs)
            await asyncio.sleep(period)

    def close(self) -> None:
        """Tell nothing any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _new_status(self) -> str:
        self._told = self._status()
        return self._told

    def _tell(self, **fields: str) -> None:
        self._owed |= fields
        if self._socket is None or not self._owed:
            return
        message = "\n".join(f"{name}={value}" for name, value in self._owed.items())
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError:  # it is full, or gone for the moment
            return
        self._owed.clear()
