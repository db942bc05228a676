"""All child processes of the daemon: a nursery per backend, and how each replica died."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from wakeful.errors import Unavailable
from wakeful.runtime.arena import Slot
from wakeful.runtime.messages import CONFINED, Awake, Confinement
from wakeful.runtime.nursery import SLOTS, Nursery
from wakeful.runtime.subreaper import become_subreaper

log = logging.getLogger(__name__)

CRASHES = {signal.SIGSEGV, signal.SIGFPE, signal.SIGILL, signal.SIGBUS, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP}
"""What a process brings upon itself."""
REAP_SECONDS = 1.0
"""How often the replicas of a dead nursery are looked after: nobody else reaps them."""
REPORT_SECONDS = 0.5
"""A death that nobody reports within this time stays unexplained: its nursery has died too."""


@dataclass(frozen=True, slots=True)
class Death:
    """Why a replica's process ended. `oom`: the kernel killed it for memory; `stuck` and `broken`: we killed it."""

    kind: Literal["oom", "signal", "exit", "stuck", "broken", "unknown"]
    text: str
    crashed: bool = False
    """True when what it ran has ended it, and nobody from outside."""


class Processes:
    """Forks replicas and explains their ends. `oom_kills` reads the count of the kernel's kills for memory in our cgroup."""

    def __init__(
        self, oom_kills: Callable[[], int], on_nursery_lost: Callable[[str, str], None],
        confinement: Confinement = CONFINED, hidden: Iterable[str] = (), on_output: Callable[[str, str], None] | None = None,
    ) -> None:
        """`hidden`: environment variables that are no business of a model's. `on_output` hears each line that one prints, and of which backend."""
        self._confinement = confinement
        self._hidden = set(hidden)
        self._nurseries: dict[str, Nursery] = {}
        self._oom_kills = oom_kills
        self._oom_seen = oom_kills()
        self.on_nursery_lost = on_nursery_lost
        self.on_output = on_output or (lambda backend, line: log.info("%s: %s", backend, line))
        self._numbers = 0
        self._unforked: dict[int, str] = {}
        self._statuses: dict[int, int] = {}
        self._waiting: dict[int, Callable[[Death], None]] = {}
        self._orphaned: set[int] = set()
        """Process groups whose nursery has died. Their replicas are our children now."""
        become_subreaper()  # replicas of a dead nursery become ours

    def hide(self, variables: Iterable[str]) -> None:
        """Keep these out of nurseries that start from now on."""
        self._hidden.update(variables)

    # ── forking ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def warm(self, backend: str) -> Nursery:
        """The nursery of a backend, started if it is not there yet."""
        nursery = self._nurseries.get(backend)
        if nursery is None:
            nursery = self._nurseries[backend] = Nursery(backend, _Reports(self, backend), self._confinement, self._hidden)
            nursery.start()
        return nursery

    def new_slots(self) -> list[Slot]:
        """Raises Unavailable when there is no room for them."""
        slots: list[Slot] = []
        try:
            while len(slots) < SLOTS:
                slots.append(Slot.create())
        except Unavailable:
            for slot in slots:
                slot.close()
            raise
        return slots

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def fork(self, backend: str, number: int, slots: Sequence[Slot], on_socket: Callable[[socket.socket], None], nice: int = 0) -> None:
        """Have a nursery fork a replica; it has no model yet. Raises Unavailable where the backend's library does not import."""
        self.warm(backend).fork(number, slots, nice, on_socket)

    def fork_failed(self, number: int, reason: str) -> None:
        self._unforked[number] = reason

    def unforked(self, number: int) -> str:
        """Why the latest fork of this replica could not be made; empty if it is not known that it could not. Tells it once."""
        return self._unforked.pop(number, "")

    def nurseries(self) -> dict[str, int]:
        """Pid of the nursery of each backend that is in use; 0 while there is none."""
        return {backend: nursery.pid for backend, nursery in self._nurseries.items()}

    def broken(self, backend: str) -> str:
        """Why a backend's library does not import; empty if it does, or if that is not known."""
        return self._nurseries[backend].broken if backend in self._nurseries else ""

    def stop(self) -> None:
        for nursery in self._nurseries.values():
            nursery.stop()

    # ── deaths ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def explain(self, pid: int, tell: Callable[[Death], None]) -> None:
        """Call `tell` once, as soon as it is known how process `pid` ended. Its channel has ended already."""
        if pid in self._statuses:
            tell(self._death(self._statuses.pop(pid)))
            return
        self._waiting[pid] = tell
        self._look(pid, REPORT_SECONDS)

    def _look(self, pid: int, patience: float) -> None:
        """A replica that became ours when its nursery died is reaped here; for all others the nursery's report comes."""
        self._reap_orphans()
        if pid not in self._waiting:
            return
        if patience <= 0:
            self._waiting.pop(pid)(Death("unknown", "the process ended and nobody saw how"))
        else:
            asyncio.get_running_loop().call_later(0.02, self._look, pid, patience - 0.02)

    def nursery_lost(self, backend: str, group: int, reason: str) -> None:
        if group:
            self._orphaned.add(group)
            if len(self._orphaned) == 1:
                self._look_after_orphans()
        self.on_nursery_lost(backend, reason)

    def _look_after_orphans(self) -> None:
        self._reap_orphans()
        if self._orphaned:
            asyncio.get_running_loop().call_later(REAP_SECONDS, self._look_after_orphans)

    def _reap_orphans(self) -> None:
        for group in list(self._orphaned):
            try:
                while (reaped := os.waitpid(-group, os.WNOHANG)) != (0, 0):
                    self.report(*reaped)
            except ChildProcessError:  # none is left
                self._orphaned.discard(group)

    def report(self, pid: int, status: int) -> None:
        """Somebody has reaped a process."""
        tell = self._waiting.pop(pid, None)
        if tell is None:
            self._statuses[pid] = status
            if len(self._statuses) > 1000:  # ends that nobody asks for (middle processes of splits)
                self._statuses.pop(next(iter(self._statuses)))
        else:
            tell(self._death(status))

    def _death(self, status: int) -> Death:
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return Death("exit", f"the model's process ended with status {code}", crashed=code > 0)
        name = signal.Signals(-code).name
        kills = self._oom_kills()
        if -code == signal.SIGKILL and kills > self._oom_seen:
            self._oom_seen = kills
            return Death("oom", "the kernel killed the model's process for lack of memory")
        return Death("signal", f"the model's process was ended by {name}", crashed=-code in CRASHES)


class _Reports:
    """What one nursery tells."""

    def __init__(self, processes: Processes, backend: str) -> None:
        self._processes = processes
        self._backend = backend

    def nursery_awake(self, message: Awake) -> None:
        log.info("nursery for %s is awake: %s, %s", self._backend, message.library, ", ".join(message.providers))
        for kept in message.kept:
            log.warning("processes with models for %s keep %s", self._backend, kept)

    def nursery_lost(self, pid: int, reason: str) -> None:
        self._processes.nursery_lost(self._backend, pid, reason)

    def nursery_broken(self, reason: str) -> None:
        log.error("models for %s cannot be loaded: %s", self._backend, reason)

    def replica_exited(self, pid: int, status: int) -> None:
        self._processes.report(pid, status)

    def fork_failed(self, replica: int, reason: str) -> None:
        log.error("the nursery for %s could not fork replica %d: %s", self._backend, replica, reason)
        self._processes.fork_failed(replica, reason)

    def replica_output(self, line: str) -> None:
        self._processes.on_output(self._backend, line)
