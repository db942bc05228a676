"""Jobs about a model's file, each done by a process of its own. Those that nobody waits for, such as preparing a fast-loading copy, come one at a
time and at the lowest priority, so that serving never feels them; a look for a caller, at a signature or at an upload, begins at once.
"""

import asyncio
import logging
from collections import Counter
from pathlib import Path

from wakeful.errors import InvalidInput, NotFound, OutOfMemory, Unavailable, WakefulError
from wakeful.memory.supervisor import Supervisor
from wakeful.models.errand import Errand
from wakeful.models.model import Model
from wakeful.models.preparing import write_copy
from wakeful.prepared.cache import PreparedCache
from wakeful.replicas.threads import LONG_RUN
from wakeful.runtime.messages import Load, Probed, Ready
from wakeful.runtime.processes import Processes
from wakeful.telemetry.events import Events
from wakeful.telemetry.units import show_bytes, show_seconds

log = logging.getLogger(__name__)

SMALLEST = 1024 * 1024
"""Bytes of a file from which a prepared copy is worth its place; below, a load takes a few milliseconds anyway."""
TRIES = 3
"""Preparations of one file that may fail, each after another load, before it is left as it is."""
PAUSE_SECONDS = 0.25
"""Pause before the first job: a wish comes with a load, and whoever waited for that is to be answered first. To hash a large file takes a core."""
LOOKS = 8
"""Files that are looked into at once: each look takes a process, and whoever may read may ask for any number of them."""
ROOM_SECONDS = 10.0
"""Pause before looking again whether there is memory for a preparation."""


class Errands:
    """The queue of jobs. `run` is a task of the daemon."""

    def __init__(self, processes: Processes, supervisor: Supervisor, cache: PreparedCache | None, events: Events, cores: int) -> None:
        self._processes = processes
        self._supervisor = supervisor
        self._cache = cache
        self._events = events
        self._cores = cores
        self._wishes: list[Model] = []
        self._under_way = ""
        """Identity of the file that is being prepared."""
        self._failures: Counter[str] = Counter()
        """Identities of files to the number of preparations that failed."""
        self._wished = asyncio.Event()
        self._looks: dict[Model, asyncio.Task[None]] = {}
        self._free_looks = asyncio.Semaphore(LOOKS)

    def wish_prepared(self, model: Model) -> None:
        """Prepare this model's file some time soon, unless that was found to be useless. Copies are made for the CPU."""
        identity = model.file.identity
        if self._cache is None or model.device != "cpu" or self._failures[identity] >= TRIES:
            return
        if identity in {self._under_way, *(other.file.identity for other in self._wishes)}:
            return
        try:
            small = model.settings.path.stat().st_size < SMALLEST
        except OSError:
            return
        if not small:
            self._wishes.append(model)
            self._wished.set()

    async def run(self) -> None:
        while True:
            await self._wished.wait()
            await asyncio.sleep(PAUSE_SECONDS)
            self._wished.clear()
            while self._wishes:
                model = await self._next()
                self._under_way = model.file.identity
                try:
                    await self._prepare(model)
                    await self._measure_threads(model)
                except WakefulError as error:
                    self._failures[model.file.identity] += 1  # it may have been a full disk, or a kill from outside
                    self._events.emit("prepare", model.key, f"no prepared copy: {error.message}; loading goes on as shipped")
                except Exception:
                    log.exception("the preparation of %s has failed", model.key)
                finally:
                    self._under_way = ""

    async def _next(self) -> Model:
        """The oldest wish that there is room for; one that may never have any holds up nobody else."""
        while True:
            for model in self._wishes:
                if self._has_room_for(model):
                    self._wishes.remove(model)
                    return model
            await asyncio.sleep(ROOM_SECONDS)

    def _has_room_for(self, model: Model) -> bool:
        """A preparation holds the model once more, beside what is loaded. With nothing loaded it may try."""
        resident = self._supervisor.resident
        return not resident or self._supervisor.budget - resident >= model.file.estimate()

    async def _prepare(self, model: Model) -> None:
        cache, file, settings = self._cache, model.file, model.settings
        identity = file.identity
        assert cache is not None
        if file.prepared_copy():  # it was there and was not used: it does not load
            await asyncio.to_thread(cache.forget, identity)
        elif await asyncio.to_thread(cache.adopt, settings.path, identity, settings.backend, file.library):
            return
        directory = await asyncio.to_thread(cache.begin)
        if directory is None:
            return
        done, copy = await write_copy(self._processes, cache, directory, settings, identity)
        if copy is None:  # there is no use in another try
            self._failures[identity] = TRIES
        else:
            self._events.emit(
                "prepare", model.key, f"copy of {show_bytes(done.nbytes)} made in {show_seconds(done.seconds)}; the next load maps it",
                bytes=done.nbytes, seconds=done.seconds,
            )

    async def _measure_threads(self, model: Model) -> None:
        """Where a lone run is long, find out what all cores would make of it: the next load may want a pool."""
        settings, known = model.settings, model.file.known()
        one = known.lone_seconds.get(1, 0.0)
        if settings.runtime.threads or self._cores < 2 or one < LONG_RUN or self._cores in known.lone_seconds:
            return
        errand = Errand.forked(self._processes, settings.backend, nice=0)  # at the lowest priority it would measure the others' load
        order = Load(settings.backend, str(settings.path), settings.runtime.device, self._cores, model.file.prepared_copy())
        try:
            await errand.answer(lambda: errand.replica.load(order), settings.life.load_timeout)
            probed = await errand.answer(errand.replica.probe, settings.life.load_timeout)
        except TimeoutError:
            return
        finally:
            errand.end()
        assert isinstance(probed, Probed)
        model.file.learn(lone_seconds={self._cores: probed.lone_seconds})
        self._events.emit(
            "probe", model.key, f"a lone run takes {show_seconds(one)} with 1 thread, {show_seconds(probed.lone_seconds)} with {self._cores}",
            one=one, many=probed.lone_seconds, threads=self._cores,
        )

    async def inspect(self, model: Model) -> None:
        """Find out the signature of a model that was never loaded. It stays asleep. Raises why its file cannot be opened.

        Whoever asks meanwhile gets the same answer.
        """
        look = self._looks.get(model)
        if look is None:
            look = self._looks[model] = asyncio.get_running_loop().create_task(self._inspect(model))
            look.add_done_callback(lambda _: self._looks.pop(model))
        await asyncio.shield(look)

    async def _inspect(self, model: Model) -> None:
        settings = model.settings
        model.file.look()
        if not settings.path.exists():
            raise NotFound(f"model {model.key}: its file {settings.path.name} is not there any more")
        async with self._free_looks:
            errand = Errand.forked(self._processes, settings.backend, nice=0)
            order = Load(settings.backend, str(settings.path), "cpu", 1, model.file.prepared_copy())
            model.learn_from_file(await _opened(errand, order, settings.life.load_timeout, f"model {model.key}"))

    async def examine(self, path: Path, backend: str, seconds: float, shown: str) -> Ready:
        """Open a file that is no model yet, called `shown`. Raises InvalidInput if it cannot be one."""
        async with self._free_looks:
            errand = Errand.forked(self._processes, backend, nice=0)
            try:
                return await _opened(errand, Load(backend, str(path), "cpu", 1), seconds, shown)
            except OutOfMemory:
                raise
            except WakefulError as error:
                if not errand.replica.pid:  # it is no fault of the file
                    raise
                raise InvalidInput(f"{shown} cannot be served: {error.message.replace(str(path), shown).replace(path.name, shown)}") from None


async def _opened(errand: Errand, order: Load, seconds: float, shown: str) -> Ready:
    try:
        ready = await errand.answer(lambda: errand.replica.load(order), seconds)
    except TimeoutError:
        raise Unavailable(f"{shown} could not be looked at within {seconds:g} s") from None
    finally:
        errand.end()
    assert isinstance(ready, Ready)
    return ready
