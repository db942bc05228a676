"""Turns of the event loop that do not become long, however many clients ask at the same moment.

All connections that have something to say are read in one turn. With thousands of them, to decode and refuse what they say takes longer than a
liveness probe waits. So inference has a part of each turn; what is left over has the first part of the next one, in order.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from wakeful.clock import monotonic
from wakeful.frontends.http.connection import Connection

PART = 0.010
"""Seconds."""


class _Begun(NamedTuple):
    connection: Connection
    go_on: Callable[[], None]


class Turns:
    def __init__(self) -> None:
        self._until = math.inf
        """The end of this turn's part; infinite while nothing was asked in this turn."""
        self._waiting: deque[_Begun] = deque()

    def free(self, now: float) -> bool:
        """May one more request be decoded in this turn?"""
        if self._until == math.inf:
            self._until = now + PART
            asyncio.get_running_loop().call_soon(self._next)
        return now < self._until and not self._waiting

    def later(self, connection: Connection, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn, unless the client has left by then."""
        self._waiting.append(_Begun(connection, go_on))

    def _next(self) -> None:
        waiting, self._until = self._waiting, math.inf
        if not waiting:
            return
        asyncio.get_running_loop().call_soon(self._next)
        now = monotonic()
        self._until = now + PART
        while waiting and now < self._until:
            connection, go_on = waiting.popleft()
            connection.go_on(go_on)
            now = monotonic()
