"""One process that does one job about a model and is ended."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

from wakeful.errors import BY_CODE, Unavailable, WakefulError
from wakeful.replicas.replica import Replica
from wakeful.runtime.messages import Compared, Prepared, Probed, Ready, Refused
from wakeful.runtime.processes import Processes

NICE = 19
"""Serving never feels a process of the lowest priority."""

Answer = Ready | Prepared | Compared | Probed


class Errand:
    """A replica outside any group. Each word of it is the answer to what it was asked last; its death is an error."""

    def __init__(self, processes: Processes, backend: str = "") -> None:
        self.replica = Replica(processes.next_number(), 0, [], self)
        self._processes = processes
        self._backend = backend
        self._answer: asyncio.Future[Answer] | None = None
        self._early: Answer | WakefulError | None = None
        """What it said before anybody waited for it."""
        self._measured = asyncio.Event()

    @classmethod
    def forked(cls, processes: Processes, backend: str, nice: int = NICE) -> "Errand":
        """A new process from the nursery; it has no model yet."""
        errand = cls(processes, backend)
        processes.fork(backend, errand.replica.number, [], errand.replica.attach, nice)
        return errand

    @classmethod
    def copied(cls, processes: Processes, original: Replica) -> "Errand":
        """A copy of a live replica, with its model; the first answer is Ready."""
        errand = cls(processes)
        original.split_into(errand.replica)
        return errand

    async def answer(self, ask: Callable[[], None] | None, seconds: float) -> Answer:
        """Ask, and wait for the answer. Raises what went wrong, TimeoutError included."""
        self._answer = asyncio.get_running_loop().create_future()
        if ask is not None:
            ask()
        early, self._early = self._early, None
        if early is not None:
            self._tell(early)
        return await asyncio.wait_for(self._answer, seconds)

    async def measured(self, seconds: float) -> int:
        """Bytes of its own, once they are exactly known; what it has said of them until then where that takes longer."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._measured.wait(), seconds)
        return self.replica.private_bytes

    def humble(self, nice: int = NICE) -> None:
        """Lower the priority of a copy; a forked one has it from birth."""
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self.replica.pid, nice)

    def end(self) -> None:
        self.replica.kill()
        self.replica.close()

    def _tell(self, word: Answer | WakefulError) -> None:
        if self._answer is None or self._answer.done():
            self._early = word
        elif isinstance(word, WakefulError):
            self._answer.set_exception(word)
        else:
            self._answer.set_result(word)

    # ── what the replica says ────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def replica_ready(self, replica: Replica, message: Ready) -> None:
        self._tell(message)

    def replica_prepared(self, replica: Replica, message: Prepared | Compared) -> None:
        self._tell(message)

    def replica_probed(self, replica: Replica, message: Probed) -> None:
        self._tell(message)

    def replica_refused(self, replica: Replica, message: Refused) -> None:
        self._tell(BY_CODE.get(message.kind, Unavailable)(message.reason))

    def replica_ended(self, replica: Replica) -> None:
        self._tell(Unavailable(self._processes.broken(self._backend) or "the process ended before it had finished"))

    def replica_grown(self, replica: Replica) -> None:
        self._measured.set()
