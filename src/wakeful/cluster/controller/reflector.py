"""What a kind's objects are now: a list, then the changes, then the same again for ever. Nothing that the API server does ends it.

What was learnt against a real API server: a refused reconnect is an error and not an end; a frozen server says nothing at all, so silence has a
limit; a version that is too old (410) needs another list; and what vanished between two lists has to be said, too.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from wakeful.cluster.controller.api import GONE, UNREACHED, Kind, Listed, Manifest, Refusal

SILENCE = 40.0
"""Seconds without a change, after which a watch is begun anew: its connection may be dead. The server ends one after 25."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds between tries; doubled with each that fails."""


class Source(Protocol):
    """What a reflector needs of the API server."""

    async def list(self, kind: Kind, label: str | None = None) -> Listed: ...

    def watch(self, kind: Kind, version: str, label: str | None = None) -> AsyncIterator[tuple[str, Manifest]]: ...


class Sink(Protocol):
    """Who is told. Both calls are idempotent, and may tell what is known already."""

    def seen(self, kind: Kind, manifest: Manifest) -> None: ...

    def vanished(self, kind: Kind, name: str) -> None: ...


class Reflector:
    """Tells `sink` of all objects of one kind. It keeps their versions only: who needs an object keeps it."""

    def __init__(
        self, source: Source, kind: Kind, sink: Sink, label: str | None = None, *, complain: Callable[[str], None], silence: float = SILENCE
    ) -> None:
        """`complain` hears of each first failure in a row."""
        self.listed = asyncio.Event()
        """Everything that there was at the start has been told."""
        self.relists = 0
        self._source, self._kind, self._sink, self._label = source, kind, sink, label
        self._complain = complain
        self._silence = silence
        self._versions: dict[str, str] = {}
        self._from: str | None = None
        """Where the watch goes on; None: list first."""
        self._failures = 0

    async def run(self) -> None:
        while True:
            try:
                if self._from is None:
                    await self._list()
                await self._watch()
            except Refusal as error:
                self._failed(error)
                delay = min(FIRST_DELAY * 2.0 ** (self._failures - 1), LONGEST_DELAY)
                await asyncio.sleep(delay * random.uniform(0.5, 1))

    def _failed(self, error: Refusal) -> None:
        self._failures += 1
        if error.code not in (UNREACHED, 429) and error.code < 500:  # the version is too old, or was never good
            self._from = None
        if self._failures == 1 and error.code != GONE:
            self._complain(f"{self._kind}: {error}; trying again")

    async def _list(self) -> None:
        found, self._from = await self._source.list(self._kind, self._label)
        self.relists += 1
        self._failures = 0
        names = {one["metadata"]["name"] for one in found}
        for name in [name for name in self._versions if name not in names]:
            self._vanished(name)
        for one in found:
            self._seen(one)
        self.listed.set()

    async def _watch(self) -> None:
        assert self._from is not None
        changes = aiter(self._source.watch(self._kind, self._from, self._label))
        try:
            while True:
                async with asyncio.timeout(self._silence):
                    change, one = await anext(changes)
                self._failures = 0
                self._from = one["metadata"]["resourceVersion"]
                if change == "DELETED":
                    self._vanished(one["metadata"]["name"])
                elif change != "BOOKMARK":
                    self._seen(one)
        except (TimeoutError, StopAsyncIteration):
            return
        finally:
            await _close(changes)

    def _seen(self, manifest: Manifest) -> None:
        meta = manifest["metadata"]
        if self._versions.get(meta["name"]) != meta["resourceVersion"]:
            self._versions[meta["name"]] = meta["resourceVersion"]
            self._sink.seen(self._kind, manifest)

    def _vanished(self, name: str) -> None:
        if self._versions.pop(name, None) is not None:
            self._sink.vanished(self._kind, name)


async def _close(changes: AsyncIterator[Any]) -> None:
    close = getattr(changes, "aclose", None)
    if close is not None:
        await close()
