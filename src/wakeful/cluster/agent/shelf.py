"""From what the controller wants to verbs of the daemon: each model is fetched, loaded, exchanged and put away by a task of its own, a few at once.

A model is registered once it has loaded, and from then on sleeps and wakes as any other of the daemon. Its next revision loads beside it, and only
then takes its place; where that does not load, the one before serves on.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from wakeful.clock import monotonic
from wakeful.cluster.agent.cache import Cache, Use
from wakeful.cluster.agent.fetch import Fetcher, FetchFailed
from wakeful.cluster.agent.memory import Proven
from wakeful.cluster.wire import HeldNow, Wanted
from wakeful.config.delivered import delivered
from wakeful.config.problems import ConfigError
from wakeful.config.settings import ModelSettings
from wakeful.errors import WakefulError
from wakeful.models.repository import Repository
from wakeful.telemetry.events import Events

log = logging.getLogger(__name__)

REMEMBERED_NAMES = 10_000
"""Models that were here, and whose late callers are told to try elsewhere."""


class Served:
    """What callers reach under a name."""

    def __init__(self, revision: str, files: Use) -> None:
        self.revision = revision
        self.files = files


class Place:
    """Of one model."""

    def __init__(self) -> None:
        self.wanted: Wanted | None = None
        """None: it is to go."""
        self.served: Served | None = None
        self.busy = False
        """A task works at it."""
        self.attempt: asyncio.Task[None] | None = None
        """To serve what is wanted, as long as it may be broken off."""
        self.loading = False
        self.fetched = 0
        """Bytes of the files that are being loaded; 0: they are not here yet."""
        self.opened = 0.0
        """When the daemon began to load them, monotonic."""
        self.longest = 0.0
        """Seconds that it gives itself for that."""
        self.going = False
        """What is served is being put away, and callers find it no more."""
        self.pinned = False
        self.error = ""
        """Why `wanted` does not load."""
        self.ailing = ""
        """What is wrong with what is served."""
        self.quiet = False
        """It was told to finish, and nobody has come any more."""

    @property
    def settled(self) -> bool:
        """Is there nothing to load? It is there, or has failed to be, or is not worth it any more."""
        wanted = self.wanted
        if wanted is None or wanted.finish or self.error:
            return True
        return self.served is not None and self.served.revision == wanted.revision

    def progress(self, now: float) -> int:
        """Files that are here are loaded for as long as the daemon allows: it ends a load that is late, and says why."""
        return self.fetched + int(min(now - self.opened, self.longest))

    def held(self, footprint: int, progress: int, *, asleep: bool) -> HeldNow | None:
        """What the controller is told; None: nothing of it is here yet."""
        served, wanted = self.served, self.wanted
        before = served.revision if served is not None and not self.going else ""
        if wanted is not None and (self.loading or self.error) and before != wanted.revision:
            return HeldNow("failed" if self.error else "loading", wanted.revision, footprint, self.error, serves=before, progress=progress)
        if served is None:
            return None
        artifact, nbytes = served.files.revision, served.files.nbytes
        if wanted is None:
            return HeldNow("finishing", before, footprint, "", artifact, nbytes)
        if wanted.finish:
            return HeldNow("quiet" if self.quiet else "finishing", before, footprint, "", artifact, nbytes)
        if self.ailing:
            return HeldNow("failed", before, footprint, self.ailing, artifact, nbytes)
        return HeldNow("ready", before, footprint, "", artifact, nbytes, asleep=asleep)


class Shelf:
    def __init__(
        self, repository: Repository, events: Events, fetcher: Fetcher, at_once: int, spawn: Callable[[Coroutine[Any, Any, None]], object],
        changed: Callable[[str], None],
    ) -> None:
        """`at_once`: first loads; more would starve what is served. `changed` is called whenever there is something to tell of a model: its name."""
        self.places: dict[str, Place] = {}
        self.proven: dict[str, Proven] = {}
        """What has loaded here, in this life or an earlier one."""
        self._repository = repository
        self._events = events
        self._fetcher = fetcher
        self._turns = asyncio.Semaphore(at_once)
        self._spawn = spawn
        self._changed = changed

    def progress(self, name: str, now: float) -> int:
        """A number that changes as long as a model's load gets on; while it waits to be fetched, as long as others are."""
        place = self.places[name]
        if place.fetched or place.wanted is None:
            return place.progress(now)
        coming = self._fetcher.running.get(place.wanted.storage_uri)
        return coming.fetched if coming is not None else self._fetcher.came

    # ── what is wanted ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def want(self, models: Mapping[str, Wanted], mentioned: Collection[str]) -> None:
        """All that is to be here. A model that has failed is tried again if it is `mentioned` anew."""
        for name in [*self.places, *(name for name in models if name not in self.places)]:
            place = self.places.setdefault(name, Place())
            wanted = models.get(name)
            again = name in mentioned and bool(place.error)
            if wanted == place.wanted and not again:
                continue
            before, place.wanted = place.wanted, wanted
            place.quiet = False
            if again or _aim(before) != _aim(wanted):
                place.error = ""
                if place.attempt is not None:
                    place.attempt.cancel()
            if not place.busy:
                place.busy = True
                self._spawn(self._attain(name, place))
            self._changed(name)

    async def _attain(self, name: str, place: Place) -> None:
        """Bring a place to what is wanted there, whatever that becomes meanwhile."""
        while True:
            wanted = place.wanted
            if not place.settled and wanted is not None:
                await self._try(name, place, wanted)
            elif wanted is None:
                await self._put_away(name, place)
            elif place.served is not None and place.pinned != wanted.pinned:
                await self._pin(name, place, wanted)
            if place.wanted is None and place.served is None:
                self.places.pop(name, None)
                break
            if place.wanted is not None and place.settled and (place.served is None or place.pinned == place.wanted.pinned):
                break
        place.busy = False
        self._changed(name)

    # ── bringing ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _try(self, name: str, place: Place, wanted: Wanted) -> None:
        """In its turn. It is broken off when another thing is wanted, but not any more once callers reach it."""
        place.attempt = attempt = asyncio.ensure_future(self._in_turn(name, place, wanted))
        try:
            await asyncio.wait([attempt])
        finally:
            attempt.cancel()
            place.attempt = None

    async def _in_turn(self, name: str, place: Place, wanted: Wanted) -> None:
        async with self._turns:
            files: list[Use] = []
            try:
                await self._bring(name, place, wanted, files)
            except (FetchFailed, ConfigError, WakefulError) as error:
                place.error = _words(error)
                self._events.emit("refuse", name, f"the cluster wants revision {wanted.revision} of it, which cannot be served: {place.error}")
            except Exception as error:
                log.exception("model %s could not be brought to what the cluster wants", name)
                place.error = f"an error of the agent itself: {error!r}"
            finally:
                place.loading, place.fetched, place.longest = False, 0, 0.0
                for one in files:
                    if place.served is None or place.served.files is not one:
                        one.release()
                self._changed(name)

    async def _bring(self, name: str, place: Place, wanted: Wanted, files: list[Use]) -> None:
        place.loading = True
        if place.served is None:
            self._repository.registry.elsewhere[name] = f"model {name} is on its way to this server: ask another one"
        self._changed(name)
        fetched = await self._fetcher.fetch(wanted.storage_uri, wanted.artifact, wanted.secret)
        files.append(fetched)
        place.fetched = fetched.nbytes
        settings, _ = await asyncio.to_thread(self._settings, name, fetched.path, wanted)
        place.opened, place.longest = monotonic(), max(one.life.load_timeout for one in settings)
        await self._repository.deliver(name, settings, partial(self._serves, name, place, wanted, fetched))

    def _settings(self, name: str, path: Path, wanted: Wanted) -> tuple[list[ModelSettings], Any]:
        defaults = self._repository.defaults
        settings, notes = delivered(name, path, wanted.revision, wanted.serving, defaults, wanted.backend, pinned=wanted.pinned)
        return [replace(one, declared=wanted.memory) for one in settings], notes

    def _serves(self, name: str, place: Place, wanted: Wanted, files: Use) -> None:
        before, place.served = place.served, Served(wanted.revision, files)
        place.attempt, place.loading, place.ailing, place.pinned = None, False, "", wanted.pinned
        self._repository.registry.elsewhere.pop(name, None)
        self.proven[name] = Proven(wanted.revision, files.revision)
        if before is not None and before.files is not files:
            before.files.release()
        self._changed(name)

    async def _pin(self, name: str, place: Place, wanted: Wanted) -> None:
        """A Model may be pinned or let loose without another revision."""
        place.pinned = wanted.pinned
        for model in self._repository.registry.versions(name):
            with suppress(WakefulError):
                await (model.pin() if wanted.pinned else model.unpin())

    async def _put_away(self, name: str, place: Place) -> None:
        self.proven.pop(name, None)
        elsewhere = self._repository.registry.elsewhere
        elsewhere.pop(name, None)
        served = place.served
        if served is None:
            return
        elsewhere[name] = f"model {name} is not on this server any more: ask another one"
        while len(elsewhere) > REMEMBERED_NAMES:
            del elsewhere[next(iter(elsewhere))]
        place.going = True
        await self._repository.withdraw(name)
        served.files.release()
        place.served, place.going = None, False

    # ── after a restart ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def restore(self, models: Mapping[str, Wanted], proven: Mapping[str, Proven], cache: Cache) -> int:
        """Serve what has loaded in an earlier life and whose files are still here, without loading it. Returns how many there are; the others take
        the usual way."""
        count = 0
        for name, wanted in models.items():
            known = proven.get(name)
            files = cache.use(known.artifact) if known is not None and known.revision == wanted.revision else None
            if files is None:
                continue
            place = self.places[name] = Place()
            place.wanted = wanted
            try:
                settings, _ = self._settings(name, files.path, wanted)
                await self._repository.deliver(name, settings, partial(self._serves, name, place, wanted, files), proven=True)
                count += 1
            except (ConfigError, WakefulError) as error:
                self._events.emit("cluster", name, f"it was served before the restart, and cannot be at once now: {_words(error)}", code="restored")
                files.release()
                del self.places[name]
        return count


def _aim(wanted: Wanted | None) -> object:
    """What work depends on."""
    return None if wanted is None else (wanted.revision, wanted.finish, wanted.artifact)


def _words(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return "; ".join(f"{one.message}{f' ({one.hint})' if one.hint else ''}" for one in error.problems if one.severity == "error")
    return error.message if isinstance(error, WakefulError) else str(error)
