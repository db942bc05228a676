"""Waiting for what other tasks do, with a deadline."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Return as soon as `condition` holds; raise TimeoutError when it does not in `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions of a test are seen, not told
            await asyncio.sleep(0.002)
