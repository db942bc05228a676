"""Callers who wait for a change of a model's state, rather than for an answer."""

import asyncio

from wakeful.errors import WakefulError


class Waiters:
    """All who wait for the same change. Whoever has left is passed over."""

    def __init__(self) -> None:
        self._futures: list[asyncio.Future[None]] = []

    def __bool__(self) -> bool:
        return any(not future.done() for future in self._futures)

    def join(self) -> asyncio.Future[None]:
        """One more, from now on: what happens before it is awaited counts."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        return future

    def release(self) -> None:
        """It has happened."""
        for future in self._take():
            future.set_result(None)

    def fail(self, error: WakefulError) -> None:
        """It will not happen."""
        for future in self._take():
            future.set_exception(error)

    def _take(self) -> list[asyncio.Future[None]]:
        waiting = [future for future in self._futures if not future.done()]
        self._futures.clear()
        return waiting
