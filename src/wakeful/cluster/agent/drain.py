"""The pod's PreStop hook asks here, over a Unix socket that only the pod itself has, and hears when the pod may end.

Nothing is put away because of it: what moves elsewhere, the controller says as always. So a container that is restarted without its pod being
deleted loses nothing.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from wakeful.clock import monotonic
from wakeful.telemetry.events import Events

MARGIN = 10.0
"""Seconds before the kill at which a drain ends, for the daemon's own stop."""
PROGRESS_SECONDS = 1.0
LOOK_SECONDS = 0.1


def verdict(elapsed: float, grace: float, *, led: bool, released: bool) -> str:
    """Why a drain is over; empty: it is not. Seconds since it was asked for, and from then to the kill."""
    if released:
        return "released: nothing has to wait for this pod any more"
    if elapsed >= max(grace - MARGIN, grace / 2):
        return f"the time is up: {elapsed:.0f} of {grace:.0f} s have passed"
    if not led and elapsed >= grace / 2:
        return f"no controller leads, and half of the {grace:.0f} s has passed"
    return ""


class Drain:
    """One, however often it is asked for."""

    def __init__(
        self, socket: Path, grace: float, asked: Callable[[], None], led: Callable[[], bool], left: Callable[[], int], events: Events,
    ) -> None:
        """`asked` is called once, `led` tells whether a controller listens, and `left` how many models callers are still sent to."""
        self.since: float | None = None
        self.released = False
        self._socket = socket
        self._grace = grace
        self._asked = asked
        self._led = led
        self._left = left
        self._events = events
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Raises OSError if the socket cannot be there."""
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # of the container's life before
            self._socket.unlink()
        self._server = await asyncio.start_unix_server(self._attend, self._socket)
        self._socket.chmod(0o600)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._socket.unlink(missing_ok=True)

    async def _attend(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tell how it goes, a line of JSON a second, and at last why it is over."""
        if self.since is None:
            self.since = monotonic()
            self._events.emit("cluster", "", f"the pod is to end: what is served here moves elsewhere, in {self._grace:.0f} s", code="drain")
            self._asked()
        try:
            await self._tell_until_over(self.since, writer)
        except ConnectionError:  # whoever asked has gone, and the drain goes on
            pass
        finally:
            writer.close()

    async def _tell_until_over(self, since: float, writer: asyncio.StreamWriter) -> None:
        told = 0.0
        while True:
            elapsed = monotonic() - since
            over = verdict(elapsed, self._grace, led=self._led(), released=self.released)
            if over or not told or elapsed - told >= PROGRESS_SECONDS:
                told = max(elapsed, 1e-9)
                line = {"seconds": round(elapsed, 1), "left": self._left(), "over": over}
                writer.write(json.dumps(line).encode() + b"\n")
                await writer.drain()
            if over:
                return
            await asyncio.sleep(LOOK_SECONDS)
