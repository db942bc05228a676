"""One replica as the daemon sees it: a child process, its channel, its slots and its state."""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Protocol

from wakeful.clock import monotonic
from wakeful.runtime import channel
from wakeful.runtime.arena import Slot
from wakeful.runtime.channel import Channel
from wakeful.runtime.messages import (
    Compare,
    Compared,
    Done,
    Failed,
    Footprint,
    FromReplica,
    Hello,
    Load,
    Placement,
    Prepare,
    Prepared,
    Probe,
    Probed,
    Ready,
    Refused,
    Run,
    Split,
    Stop,
)
from wakeful.runtime.processes import Death

decode = channel.decoder(FromReplica)

TICKS = os.sysconf("SC_CLK_TCK")


class State(StrEnum):
    WAITING = "waiting"
    """For memory."""
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    """Takes no new runs, finishes what it has."""
    DEAD = "dead"


class Watcher(Protocol):
    """Who hears what a replica says. Words about runs go to the two callables that `Replica` is given."""

    def replica_ready(self, replica: "Replica", message: Ready) -> None: ...

    def replica_refused(self, replica: "Replica", message: Refused) -> None: ...

    def replica_probed(self, replica: "Replica", message: Probed) -> None: ...

    def replica_prepared(self, replica: "Replica", message: Prepared | Compared) -> None: ...

    def replica_grown(self, replica: "Replica") -> None: ...

    def replica_ended(self, replica: "Replica") -> None:
        """The channel is at its end: the process is dead or dying."""


class Replica:
    """A child process. `number` is unique in the daemon's life, `index` is its place in the group: 0 is the primary."""

    def __init__(self, number: int, index: int, slots: list[Slot], watcher: Watcher) -> None:
        self.number = number
        self.index = index
        self.slots = slots
        self.state = State.STARTING
        self.pid = 0
        self._handle = -1
        """pidfd: names this process for ever, where a number may come back."""
        self.created = monotonic()
        self.ready_at = 0.0
        self.last_done = self.created
        self.peers = 0
        """Replicas of its model at that time."""
        self.forkable = False
        self.split_from: int | None = None
        """Number of the replica that this one is a copy of."""
        self.doom: Death | None = None
        """Why we have killed it, if we have."""
        self.private_bytes = 0
        self.shared_bytes = 0
        self.measured = False
        """Is it known by now what it holds once it has run? Private bytes are known when it is ready."""
        self.on_done: Callable[[Done], None] = _ignore
        self.on_failed: Callable[[Failed], None] = _ignore
        self._watcher = watcher
        self._channel: Channel[FromReplica] | None = None

    def core_seconds(self) -> float:
        """Processor time that its process has taken so far, all threads together; 0 where nobody can tell."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / TICKS

    # ── orders ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def attach(self, sock: socket.socket) -> None:
        """Listen to the child on its channel."""
        self._channel = Channel(sock, decode, self._told, self._ended)

    def load(self, order: Load) -> None:
        self._say(order)

    def run(self, run: int, slot: int, end: int, inputs: tuple[Placement, ...]) -> None:
        self._say(Run(run, slot, end, inputs))

    def probe(self) -> None:
        self._say(Probe())

    def compare(self, order: Compare) -> None:
        self._say(order)

    def prepare(self, order: Prepare) -> None:
        self._say(order)

    def split_into(self, copy: "Replica") -> None:
        """Fork the child between two of its runs; the copy is ready as soon as it speaks."""
        ours, theirs = channel.pair()
        self._say(Split(copy.number))
        self._say(Split(copy.number), [theirs.fileno(), *(slot.fd for slot in copy.slots)])
        theirs.close()
        copy.split_from = self.number
        copy.attach(ours)

    def stop(self) -> None:
        """Ask the child to end after what it has been given."""
        self.state = State.DRAINING
        self._say(Stop())

    def kill(self) -> None:
        """End the child now; its channel will tell."""
        if self._handle >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def condemn(self, death: Death) -> None:
        """End a child that hangs or cannot be trusted any more, and remember why."""
        self.doom = self.doom or death
        self.cut_off()

    def cut_off(self) -> None:
        """End the child now, and do not wait for its channel to tell."""
        self.kill()
        if self._channel is not None:
            self._channel.drop()

    def renew(self) -> None:
        """Forget a process that died before its model was open, to be started again with new slots."""
        self.close()
        self.state = State.STARTING
        self.pid = 0
        self.doom = None
        self._channel = None

    def close(self) -> None:
        """Give back the descriptors and the shared memory."""
        self.state = State.DEAD
        if self._channel is not None:
            self._channel.close()
        for slot in self.slots:
            slot.close()
        self.slots = []
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    @property
    def has_large_slots(self) -> bool:
        return any(slot.large for slot in self.slots)

    def trim(self) -> None:
        """Give back what large runs have left in the slots. Nothing may lie in them that is still needed."""
        for slot in self.slots:
            slot.trim()

    def _say(self, message: Load | Run | Probe | Prepare | Compare | Split | Stop, descriptors: list[int] | None = None) -> None:
        if self._channel is not None:
            self._channel.send(message, descriptors or ())

    # ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _told(self, message: FromReplica) -> None:
        if isinstance(message, Done):
            self.on_done(message)
        elif isinstance(message, Failed):
            self.on_failed(message)
        elif not self._expected(message):
            self.condemn(Death("broken", f"the model's process said {type(message).__name__}, which nobody had asked for"))
        elif isinstance(message, Hello):
            self.pid = message.pid
            try:
                self._handle = os.pidfd_open(message.pid)
            except ProcessLookupError:  # dead already: the channel's end comes next
                pass
            except OSError:  # no descriptors are left: a process that cannot be ended must not run, and at its channel's end it goes
                self._let_go()
        elif isinstance(message, Ready):
            self.ready_at = self.last_done = monotonic()
            self.forkable = message.forkable
            self.private_bytes = message.private_bytes
            self.state = State.READY
            self._watcher.replica_ready(self, message)
        elif isinstance(message, Footprint):
            self.private_bytes, self.shared_bytes, self.measured = message.private_bytes, message.shared_bytes, True
            self._watcher.replica_grown(self)
        elif isinstance(message, Probed):
            self._watcher.replica_probed(self, message)
        elif isinstance(message, Refused):
            self._watcher.replica_refused(self, message)
        elif isinstance(message, Prepared | Compared):
            self._watcher.replica_prepared(self, message)

    def _expected(self, message: FromReplica) -> bool:
        """May a child that is whole say this now? Above all, it cannot name another process as itself."""
        if isinstance(message, Hello):
            return not self.pid
        return self.state is State.STARTING or not isinstance(message, Ready | Refused | Prepared | Compared)

    def _let_go(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._ended()

    def _ended(self) -> None:
        if self._channel is not None and self._channel.fault:
            self.doom = self.doom or Death("broken", f"the model's process {self._channel.fault}")
        self.kill()  # its end of the channel may be gone while it lives
        self._watcher.replica_ended(self)


def _ignore(_: Done | Failed) -> None:
    """Nobody listens to runs yet."""
