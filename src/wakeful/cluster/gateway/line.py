"""The way to the controllers, of which one leads: a channel, and another one when it has failed."""

import itertools
from collections.abc import Callable
from contextlib import suppress

import grpc


class Line:
    def __init__(self, connect: Callable[[int], grpc.aio.Channel]) -> None:
        """`connect` gives a new channel for the n-th try: to another controller, with certificates as they are now."""
        self._connect = connect
        self._tries = itertools.count(1)
        self.channel = connect(0)

    async def replace(self, failed: grpc.aio.Channel) -> None:
        """It has failed, for one caller or for several at once."""
        if self.channel is failed:
            with suppress(OSError):  # certificates that are just being exchanged
                self.channel = self._connect(next(self._tries))
                await failed.close()

    async def close(self) -> None:
        await self.channel.close()
