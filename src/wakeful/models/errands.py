"""Jobs about a model's file that no request waits for: preparing a fast-loading copy, and looking up a signature. Each is done by a process of its
own at the lowest priority, one at a time, so that serving never feels them.
"""

import asyncio
import logging
from collections import deque
from pathlib import Path

from wakeful.errors import BY_CODE, NotFound, Unavailable, WakefulError
from wakeful.memory.supervisor import Supervisor
from wakeful.models.model import Model
from wakeful.prepared.cache import PreparedCache
from wakeful.replicas.replica import Replica
from wakeful.runtime.messages import Load, Prepare, Prepared, Probed, Ready, Refused
from wakeful.runtime.processes import Processes
from wakeful.telemetry.events import Events
from wakeful.telemetry.units import show_bytes, show_seconds

log = logging.getLogger(__name__)

NICE = 19
SMALLEST = 1024 * 1024
"""Bytes of a file from which a prepared copy is worth its place; below, a load takes a few milliseconds anyway."""
ROOM_SECONDS = 10.0
"""Pause before looking again whether there is memory for a preparation."""


class Errand:
    """One process that does one job; the answer is a future."""

    def __init__(self, processes: Processes, backend: str, nice: int) -> None:
        self.answer: asyncio.Future[Ready | Prepared] = asyncio.get_running_loop().create_future()
        self.replica = Replica(processes.next_number(), 0, [], self)
        processes.fork(backend, self.replica.number, [], self.replica.attach, nice)

    def replica_ready(self, replica: Replica, message: Ready) -> None:
        self._tell(message)

    def replica_prepared(self, replica: Replica, message: Prepared) -> None:
        self._tell(message)

    def replica_probed(self, replica: Replica, message: Probed) -> None:
        """Not asked for here."""

    def replica_grown(self, replica: Replica) -> None:
        """It runs nothing."""

    def replica_refused(self, replica: Replica, message: Refused) -> None:
        self._fail(BY_CODE.get(message.kind, Unavailable)(message.reason))

    def replica_ended(self, replica: Replica) -> None:
        self._fail(Unavailable("the process ended before it had finished"))

    def _tell(self, message: Ready | Prepared) -> None:
        if not self.answer.done():
            self.answer.set_result(message)

    def _fail(self, error: WakefulError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def end(self) -> None:
        self.replica.kill()
        self.replica.close()
        self.answer.cancel()


class Errands:
    """The queue of jobs. `run` is a task of the daemon."""

    def __init__(self, processes: Processes, supervisor: Supervisor, cache: PreparedCache | None, events: Events) -> None:
        self._processes = processes
        self._supervisor = supervisor
        self._cache = cache
        self._events = events
        self._wishes: deque[Model] = deque()
        self._refused: set[str] = set()
        """Identities of files that cannot be prepared."""
        self._wished = asyncio.Event()

    def wish_prepared(self, model: Model) -> None:
        """Prepare this model's file some time soon, unless that was found to be useless."""
        if self._cache is None or model in self._wishes or model.file.identity in self._refused:
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
            self._wished.clear()
            while self._wishes:
                await self._room_for(self._wishes[0])
                model = self._wishes.popleft()
                try:
                    await self._prepare(model)
                except WakefulError as error:
                    self._refused.add(model.file.identity)
                    self._events.emit("prepare", model.id, f"no prepared copy: {error.message}; loading goes on as shipped")

    async def _room_for(self, model: Model) -> None:
        """A preparation holds the model once more: wait until the budget has room for that beside what is loaded."""
        while self._supervisor.budget - self._supervisor.resident < model.file.estimate() and self._supervisor.resident:
            await asyncio.sleep(ROOM_SECONDS)

    async def _prepare(self, model: Model) -> None:
        cache, file, settings = self._cache, model.file, model.settings
        identity = file.identity
        assert cache is not None
        if await asyncio.to_thread(cache.adopt, settings.path, identity, settings.backend, file.library):
            return
        directory = await asyncio.to_thread(cache.begin)
        if directory is None:
            return
        errand = Errand(self._processes, settings.backend, NICE)
        try:
            errand.replica.prepare(Prepare(settings.backend, str(settings.path), str(directory)))
            done = await asyncio.wait_for(errand.answer, settings.life.load_timeout * 4)
        except TimeoutError:
            raise Unavailable("preparing it took too long") from None
        else:
            assert isinstance(done, Prepared)
            copy = await self._commit(cache, directory, model, identity)
            if copy is None:
                self._refused.add(identity)
            else:
                self._events.emit(
                    "prepare", model.id, f"copy of {show_bytes(done.nbytes)} made in {show_seconds(done.seconds)}; the next load maps it",
                    bytes=done.nbytes, seconds=done.seconds,
                )
        finally:
            errand.end()
            await asyncio.to_thread(cache.discard, directory)

    async def _commit(self, cache: PreparedCache, directory: Path, model: Model, identity: str) -> Path | None:
        settings = model.settings
        return await asyncio.to_thread(cache.commit, directory, settings.path, identity, settings.backend, model.file.library)

    async def inspect(self, model: Model) -> None:
        """Find out the signature of a model that was never loaded. It stays asleep. Raises why its file cannot be opened."""
        settings = model.settings
        model.file.look()
        if not settings.path.exists():
            raise NotFound(f"model {model.id}: its file {settings.path.name} is not there any more")
        errand = Errand(self._processes, settings.backend, 0)
        try:
            errand.replica.load(Load(settings.backend, str(settings.path), "cpu", 1, model.file.prepared_copy()))
            ready = await asyncio.wait_for(errand.answer, settings.life.load_timeout)
            assert isinstance(ready, Ready)
            model.learn_from_file(ready)
        except TimeoutError:
            raise Unavailable(f"model {model.id} could not be looked at within {settings.life.load_timeout:g} s") from None
        finally:
            errand.end()
