"""All replicas of one model: starting them (from the nursery, or by splitting a live one), ending them, and noticing their deaths.

The group carries out what the pure policies beside it decide. What a replica's coming and going means for requests is its owner's business.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from wakeful.clock import monotonic
from wakeful.config.settings import ModelSettings
from wakeful.errors import BY_CODE, OutOfMemory, Unavailable, WakefulError
from wakeful.replicas import idle
from wakeful.replicas.replica import Replica, State
from wakeful.runtime.messages import Compared, Load, Prepared, Probed, Ready, Refused
from wakeful.runtime.processes import Death, Processes
from wakeful.telemetry.metrics import UnloadReason

START_TRIES = 4
"""Processes of one replica that may die while they load, such as by a kill from outside, before the load has failed."""
UNSEEN_TRIES = 12
"""The same for starts that no process came of, because the nursery has died: it may need some seconds to come back if it dies again and again."""
LONGEST_PAUSE = 0.8
"""Seconds between two starts."""
DRAIN_SECONDS = 30.0
"""Shortest limit for the runs of a replica that is to end. A request may take longer, and nothing that somebody still waits for is cut."""
LEAVE_SECONDS = 2.0
"""Longest wait for a replica that is to end and has nothing to do: nothing is lost by a kill, and its model's next callers wait for it."""
TRIM_SECONDS = 5.0
"""A replica that has been idle for so long gives back what large runs have left in its slots: the sums of memory do not count it, and a model that
never sleeps would hold it for ever. A client that asks one large question after the other does not pay for new pages each time."""


class Owner(Protocol):
    """The model, as its group sees it."""

    pinned: bool

    def replica_ready(self, replica: Replica, message: Ready, *, first: bool) -> None: ...

    def replica_probed(self, replica: Replica, message: Probed) -> None: ...

    def replica_draining(self, replica: Replica) -> None:
        """It takes no new runs from now on."""

    def replica_died(self, replica: Replica, death: Death) -> None:
        """It was ready or draining and ended by itself."""

    def replica_gone(self, replica: Replica, reason: UnloadReason) -> None:
        """It was ended by the group and is gone."""

    def start_failed(self, replica: Replica, error: WakefulError) -> None: ...

    def replica_busy(self, replica: Replica) -> bool: ...

    def load_order(self) -> Load:
        """How to open the model now."""


class Memory(Protocol):
    """Where room for a replica is asked for and given back."""

    def admit(self, replica: Replica, granted: Callable[[], None], refused: Callable[[WakefulError], None]) -> None: ...

    def measured(self, replica: Replica) -> None: ...

    def ready(self, replica: Replica) -> None: ...

    def release(self, replica: Replica) -> None: ...


class ReplicaGroup:
    def __init__(self, settings: ModelSettings, processes: Processes, memory: Memory, owner: Owner) -> None:
        self.settings = settings
        self.replicas: list[Replica] = []
        """Alive or on their way, by index."""
        self._processes = processes
        self._memory = memory
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._reasons: dict[int, UnloadReason] = {}
        """Replica number to the reason why it is being ended."""
        self._tries: dict[int, int] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        """Replica number to its load or drain limit."""
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._trim_timer: asyncio.TimerHandle | None = None

    # ── state ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def ready(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.state is State.READY]

    @property
    def starting(self) -> int:
        return sum(replica.state in (State.WAITING, State.STARTING) for replica in self.replicas)

    @property
    def staying(self) -> int:
        """Replicas that are ready or will be."""
        return len(self.ready()) + self.starting

    # ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> Replica:
        """Begin one more replica: first room for it, then the process."""
        taken = {replica.index for replica in self.replicas}
        index = next(index for index in range(len(taken) + 1) if index not in taken)
        replica = Replica(self._processes.next_number(), index, [], self)
        replica.state = State.WAITING
        self.replicas.append(replica)
        self.replicas.sort(key=lambda one: one.index)
        self._timers[replica.number] = self._loop.call_later(self.settings.life.load_timeout, self._load_timed_out, replica)
        self._memory.admit(replica, lambda: self._launch(replica), lambda error: self._give_up(replica, error))
        return replica

    def _launch(self, replica: Replica) -> None:
        if replica not in self.replicas:
            return
        replica.state = State.STARTING
        try:
            replica.slots = self._processes.new_slots()
            original = next((one for one in self.ready() if one.forkable), None)
            if original is not None and not self._tries.get(replica.number):
                original.split_into(replica)
            else:
                replica.split_from = None
                self._processes.fork(self.settings.backend, replica.number, replica.slots, replica.attach)
                replica.load(self._owner.load_order())
        except Unavailable as error:
            self._give_up(replica, error)

    def _load_timed_out(self, replica: Replica) -> None:
        replica.kill()
        self._give_up(replica, Unavailable(f"the load took longer than load_timeout_secs ({self.settings.life.load_timeout:g} s)"))

    def _give_up(self, replica: Replica, error: WakefulError) -> None:
        """A start has failed for good."""
        if replica in self.replicas:
            self._remove(replica)
            replica.close()
            self._owner.start_failed(replica, error)

    # ── ending ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def end(self, replica: Replica, reason: UnloadReason) -> None:
        """Let one replica finish its runs and go."""
        if replica.state is State.READY:
            self._reasons[replica.number] = reason
            self._owner.replica_draining(replica)
            replica.stop()
            longest = max(DRAIN_SECONDS, self.settings.admission.request_timeout) if self._owner.replica_busy(replica) else LEAVE_SECONDS
            self._set_timer(replica, longest, replica.cut_off)
        elif replica.state in (State.WAITING, State.STARTING):
            replica.kill()
            self._remove(replica)
            replica.close()
            self._owner.replica_gone(replica, reason)

    def end_all(self, reason: UnloadReason) -> None:
        """End every replica, the primary last."""
        for replica in reversed(self.replicas.copy()):
            self.end(replica, reason)

    def _remove(self, replica: Replica) -> None:
        self.replicas.remove(replica)
        self._cancel_timer(replica)
        self._tries.pop(replica.number, None)
        self._memory.release(replica)

    # ── sleeping ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def touched(self, replica: Replica) -> None:
        """The replica has just become idle."""
        replica.last_done, replica.peers = monotonic(), len(self.replicas)
        if self._trim_timer is None and replica.has_large_slots:
            self._trim_timer = self._loop.call_later(TRIM_SECONDS, self._trim)
        if self._sweep_timer is None:
            self.sweep()

    def sweep(self) -> None:
        """End the replicas that have been idle for long enough, and look again when the next one could be."""
        self.cancel_sweep()
        now = monotonic()
        life = self.settings.life
        alive = {replica.index: replica for replica in self._alive()}
        views = self.idle_views()
        together = self.settings.replicas.fixed is not None
        decision = idle.sweep(now, views, life.idle_timeout, self.settings.replicas.min_replicas, self._owner.pinned, together=together)
        for index in decision.stop if together else decision.stop[:1]:  # one by one: the next when this one has gone
            self.end(alive[index], "idle")
        if decision.next_check is not None:
            self._sweep_timer = self._loop.call_later(max(decision.next_check - now, 0.001), self.sweep)

    def _alive(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.state not in (State.DRAINING, State.DEAD)]

    def idle_views(self) -> list[idle.IdleView]:
        """Who is there, as the idle clock sees them."""
        return [idle.IdleView(one.index, self._owner.replica_busy(one), one.last_done, one.peers) for one in self._alive()]

    def cancel_sweep(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _trim(self) -> None:
        """Trim who has been idle for long enough, and look again when the next one will have been. Who is busy comes back by `touched`."""
        self._trim_timer = None
        now = monotonic()
        waits: list[float] = []
        for replica in self.ready():
            if replica.has_large_slots and not self._owner.replica_busy(replica):
                left = replica.last_done + TRIM_SECONDS - now
                if left > 0:
                    waits.append(left)
                else:
                    replica.trim()
        if waits:
            self._trim_timer = self._loop.call_later(min(waits), self._trim)

    # ── what replicas say ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def replica_ready(self, replica: Replica, message: Ready) -> None:
        self._cancel_timer(replica)
        self._tries.pop(replica.number, None)
        self._memory.ready(replica)
        self._owner.replica_ready(replica, message, first=len(self.ready()) == 1)

    def replica_refused(self, replica: Replica, message: Refused) -> None:
        error = BY_CODE.get(message.kind, Unavailable)(message.reason)
        self._give_up(replica, error)

    def replica_probed(self, replica: Replica, message: Probed) -> None:
        self._owner.replica_probed(replica, message)

    def replica_prepared(self, replica: Replica, message: Prepared | Compared) -> None:
        """Preparation is done by replicas outside any group."""

    def replica_grown(self, replica: Replica) -> None:
        self._memory.measured(replica)

    def replica_ended(self, replica: Replica) -> None:
        if replica not in self.replicas:
            return
        if replica.number in self._reasons:
            reason = self._reasons.pop(replica.number)
            self._remove(replica)
            self._owner.replica_gone(replica, reason)
            replica.close()
            if reason == "idle":
                self.sweep()
        elif replica.pid:
            if replica.state is State.READY:  # why it died may take a moment to learn; nobody shall be sent to it meanwhile
                replica.state = State.DEAD
                self._owner.replica_draining(replica)
            self._processes.explain(replica.pid, lambda death: self._died(replica, death))
        else:
            no_room = self._processes.unforked(replica.number)
            if no_room:
                self._start_again(replica, f"there is no room for another process: {no_room}", START_TRIES)
            else:
                self._start_again(replica, "its process was never seen", UNSEEN_TRIES)

    def _died(self, replica: Replica, death: Death) -> None:
        if replica not in self.replicas:
            return
        death = replica.doom or death
        if replica.state is State.STARTING:
            if death.kind == "oom":
                self._give_up(replica, OutOfMemory(f"out of memory while loading: {death.text}"))
            else:
                self._start_again(replica, death.text, START_TRIES)
        else:
            self._remove(replica)
            self._owner.replica_died(replica, death)  # who looks into the slots, so they are closed last
            replica.close()

    def _start_again(self, replica: Replica, why: str, most: int) -> None:
        """A process ended before its model was open: try once more in a new one, a bounded number of times."""
        tries = self._tries[replica.number] = self._tries.get(replica.number, 0) + 1
        if tries >= most:
            self._give_up(replica, Unavailable(f"the model's process could not be started: {why}"))
            return
        replica.renew()
        self._loop.call_later(min(0.05 * 4 ** (tries - 1), LONGEST_PAUSE), self._launch, replica)

    # ── timers ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _set_timer(self, replica: Replica, seconds: float, act: Callable[[], None]) -> None:
        self._cancel_timer(replica)
        self._timers[replica.number] = self._loop.call_later(seconds, act)

    def _cancel_timer(self, replica: Replica) -> None:
        timer = self._timers.pop(replica.number, None)
        if timer is not None:
            timer.cancel()
