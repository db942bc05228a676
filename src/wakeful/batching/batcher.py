"""The loop of one model's batches: requests wait in the lanes of replicas, batches are cut, run and answered.

A lane belongs to one replica; its queue holds what has not started, which may still move to another lane. Nothing here waits: everything is a
reaction to an arrival, a timer, or a word from a replica. Whatever becomes of a request, the settler tells its caller.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Protocol

from wakeful.batching import collate, parts, policy
from wakeful.batching.boarding import board
from wakeful.batching.costs import ArrivalRate, CostModel, GroupCosts
from wakeful.batching.doubts import Doubts
from wakeful.batching.lane import Batch, Lane, Runner
from wakeful.batching.padding import Padder
from wakeful.batching.queue import BatchQueue
from wakeful.batching.retries import Retries, RetriesOwner
from wakeful.batching.settling import Settler
from wakeful.batching.stealing import take_over
from wakeful.clock import monotonic
from wakeful.config.settings import BatchingSettings
from wakeful.errors import ExecutionFailed, TimedOut, WakefulError
from wakeful.inference import FOREVER, InferRequest
from wakeful.runtime.arena import Slot
from wakeful.runtime.messages import Done, Failed
from wakeful.telemetry.metrics import ModelStats

log = logging.getLogger(__name__)

LOOK_PAUSE = 20e-6
"""Seconds for each waiting request from one look at all of them to the next: dozens of times what the look takes."""


class Owner(RetriesOwner, Protocol):
    """What the batcher tells the model that it belongs to."""

    def lane_idle(self, lane: Lane) -> None:
        """Nothing is queued or running in this lane any more."""

    def lane_stuck(self, lane: Lane, seconds: float) -> None:
        """Its run has lasted far too long, and nobody waits for it any more."""

    def lane_broken(self, lane: Lane) -> None:
        """Its replica has answered a run that it was not given."""


class Batcher:
    """All lanes of one model."""

    def __init__(
        self, settings: BatchingSettings, choose: Callable[[Sequence[tuple[int, int]]], int], stats: ModelStats, owner: Owner
    ) -> None:
        self.lanes: list[Lane] = []
        self._closing: list[Lane] = []
        """Closed lanes whose last runs have not ended."""
        self.room = BatchQueue()
        """Requests that no ready replica can take yet."""
        self.held = False
        """True while the model drains: new requests wait in the room."""
        self.padder: Padder | None = None
        """Set where requests of unequal length may share a run."""
        self._group_costs = GroupCosts()
        self.costs = self._group_costs.all
        self.rate = ArrivalRate()
        self.allowance, self.punctuality = policy.Allowance.of_target(), policy.Allowance.of_deadline()
        self._missed = False
        """The time of somebody who waited here was up since the last run ended."""
        self.limits = policy.Limits(settings.max_rows, settings.max_delay, settings.target_p99, settings.policy)
        """`max_rows` falls when a run ends out of memory."""
        self._due = policy.POLICIES[settings.policy]
        self._choose = choose
        self._stats = stats
        settler = Settler(stats)
        self._answer, self._refuse, self._drop = settler.answer, settler.refuse, settler.drop
        self._retries = Retries(self.limits, owner, self._enqueue, self._split, self._refuse)
        self._doubts = Doubts(self._group_costs, owner.lane_stuck)
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._runs = 0
        self._next_deadline = FOREVER
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._next_look = 0.0
        """When it may be asked again who has left."""

    # ── what the model asks ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def waiting(self) -> int:
        """Requests that have not started."""
        total = self.room.size
        for lane in self.lanes:  # asked on every arrival: a generator costs three times as much
            total += lane.queue.size
        return total

    @property
    def active(self) -> int:
        """Requests that are running."""
        return sum(lane.active for lane in (*self.lanes, *self._closing))

    @property
    def busy(self) -> bool:
        return any(lane.busy for lane in (*self.lanes, *self._closing))

    def in_flight(self) -> set[InferRequest]:
        """What callers wait for, each request once, whatever it was cut into. A look at every request."""
        if not self.busy and not self.room.size:
            return set()
        lanes = [*self.lanes, *self._closing]
        waiting = [request for queue in (self.room, *(lane.queue for lane in lanes)) for request in queue]
        running = [request for lane in lanes for _, batch in lane.running for request in batch.requests]
        return {whole for request in (*waiting, *running) if not (whole := parts.outermost(request)).settled}

    def run_seconds(self, now: float) -> float:
        """Seconds that the runs have lasted which have begun and not ended."""
        return sum(now - lane.since for lane in (*self.lanes, *self._closing) if lane.running)

    @property
    def row_limit(self) -> int:
        """Most rows of one run, by the settings, by the latency target and by what memory allowed."""
        return policy.row_limit(self.limits, self.costs)

    def _limits_of(self, group: Hashable) -> policy.Limits:
        return self.limits if self.padder is None else self.padder.limits(group, self.limits)

    def smallest_queue(self) -> int:
        """Requests that wait for the least busy ready replica."""
        lanes = self.lanes
        return lanes[0].queue.size if len(lanes) == 1 else min([lane.queue.size for lane in lanes], default=self.room.size)

    def open(self, replica: Runner) -> Lane:
        """A replica is ready: give it a lane and let it take what waits."""
        lane = Lane(replica)
        self.lanes.append(lane)
        self._schedule(lane)
        return lane

    def close(self, lane: Lane) -> None:
        """The replica takes no new work (it drains or has died): what has not started moves to other lanes, or waits in the room."""
        self.lanes.remove(lane)
        lane.closed = True
        lane.cancel_timer()
        if lane.running:
            self._closing.append(lane)
        for request in lane.queue.drain():
            self._enqueue(request)

    def lost(self, lane: Lane, reason: str, *, out_of_memory: bool = False, crashed: bool = False) -> None:
        """The replica died. What it was running is run again alone, elsewhere: only a request that keeps killing replicas fails."""
        running, lane.running = lane.running, deque()
        lane.active = 0
        if lane.closed:
            self._forget(lane)
        else:
            self.close(lane)
        for run, batch in running:
            begun = lane.replica.slots[batch.slot].marked == run  # else it was handed over, but no fault of its
            self._retries.lost(batch.requests, reason, begun=begun, out_of_memory=out_of_memory, crashed=crashed)

    def submit(self, request: InferRequest) -> None:
        """Queue a validated request: its rows and group are set."""
        if request.rows > 1:
            self._place(request)
        else:
            self._enqueue(request)
        self.rate.observe(request.arrived, request.rows)

    def regroup(self, validate: Callable[[InferRequest], None]) -> None:
        """Look at everything that waits once more: a replica is ready, or more is known of the model. `validate` raises for what cannot run."""
        def check(request: InferRequest) -> None:
            if not request.attempts and not request.deaths:  # others run alone, as they are
                validate(request)

        self._sift(check, self._place)

    def take(self) -> list[InferRequest]:
        """Everything that waits, for somebody else to serve or to refuse."""
        return [request for queue in (self.room, *(lane.queue for lane in self.lanes)) for request in queue.drain()]

    def adopt(self, waiting: Iterable[InferRequest]) -> None:
        """Serve what waited for another model, or file; it is looked at again as soon as the model is known (`regroup`)."""
        for request in dict.fromkeys(map(parts.from_the_beginning, waiting)):  # two parts of one may wait
            self._enqueue(request)

    def forget_left(self) -> bool:
        """Drop what waits although its caller has left; True if there was any. For whoever is about to refuse a newcomer because of a long queue.

        A look at every request, so it is not repeated at once.
        """
        now = monotonic()
        if now < self._next_look:
            return False
        before = self.waiting
        self._drop_forsaken(now)
        after = self.waiting
        self._next_look = now + LOOK_PAUSE * after
        return after < before

    def weed(self, check: Callable[[InferRequest], None]) -> None:
        """Refuse what waits and must not run; `check` raises for it."""
        self._sift(check, self._enqueue)

    def _sift(self, check: Callable[[InferRequest], None], keep: Callable[[InferRequest], None]) -> None:
        for request in self.take():
            if request.settled:
                continue
            try:
                check(request)
            except WakefulError as error:
                self._refuse(request, error)
            else:
                keep(request)

    def fail_all(self, error: WakefulError) -> None:
        """Refuse everything that waits."""
        for request in self.take():
            self._refuse(request, error)

    def fail_running(self, error: WakefulError) -> None:
        """Refuse everything that runs; its answers will come too late."""
        for lane in (*self.lanes, *self._closing):
            for _, batch in lane.running:
                for request in batch.requests:
                    self._refuse(request, error)

    def prospect(self, rows: int) -> policy.Prospect:
        """What a request that arrives now has to expect, as far as run times are known."""
        lanes, costs = self.lanes, self.costs
        if not lanes or not costs.known:
            return policy.Prospect(0.0, 0.0)
        now = monotonic()
        ahead, free = 0, []
        for lane in lanes:
            ahead += lane.queue.rows
            free.append(lane.busy_for(now, costs))
        each = policy.cut(ahead + rows, self.limits, costs, FOREVER, len(lanes))
        return policy.prospect(rows, ahead, free, each, costs)

    # ── arrivals ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _place(self, request: InferRequest) -> None:
        """Queue a request, in parts if it is too large for one run."""
        limit = policy.row_limit(self._limits_of(request.group), self.costs)
        if request.rows > limit and request.group is not None:
            self._split(request, limit)
        else:
            self._enqueue(request)

    def _enqueue(self, request: InferRequest) -> None:
        if request.deadline < self._next_deadline:
            self._watch_deadline(request.deadline)
        lanes = self.lanes
        if not lanes or (self.held and not parts.continues(request)):  # what has begun is finished by those who began it
            self.room.push(request)
            return
        lane = lanes[0] if len(lanes) == 1 else lanes[self._choose([lane.load for lane in lanes])]
        lane.queue.push(request)
        if not lane.scheduled and lane.queue.rows >= lane.full_at:
            lane.scheduled = True
            self._loop.call_soon(self._pump, lane)  # whatever arrives in this turn of the loop may share the run
        if lane.running and len(lanes) > 1:
            for other in lanes:  # an idle one that waits for company may want this request
                if other.timer is not None:
                    self._schedule(other)

    def _split(self, request: InferRequest, limit: int) -> None:
        if isinstance(request, parts.Part):  # its pieces are taken in its place, which would queue its successor
            request.whole.submit_next()
        parts.Parted(request, limit, self._enqueue, self._answer, self._refuse).submit_next()

    # ── batches out ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _schedule(self, lane: Lane) -> None:
        if not lane.scheduled:
            lane.scheduled = True
            self._loop.call_soon(self._pump, lane)

    def _timer_fired(self, lane: Lane) -> None:
        lane.timer = None
        self._pump(lane)

    def _pump(self, lane: Lane) -> None:
        """Seal what is due in this lane."""
        lane.scheduled = False
        lane.cancel_timer()
        lanes = self.lanes
        while lane.free and not lane.closed:
            head = lane.queue.head() if lane.running or len(lanes) == 1 else take_over(lane, lanes, self.limits, self._group_costs)
            if head is None:
                if not lane.running:
                    self._owner.lane_idle(lane)
                return
            now = monotonic()
            arriving = self.rate.rate(now)
            group = lane.queue.next_group
            limits, costs = self._limits_of(group), self._group_costs.of(group)
            if lane.running:
                lane.full_at = policy.ahead(limits, costs, arriving, len(lanes))
                if head[0] < lane.full_at:
                    return
            elif (due := self._due(self._view(lane, head), limits, costs, arriving)) > now:
                lane.timer = self._loop.call_later(due - now, self._timer_fired, lane)
                return
            best = policy.cut(head[0], limits, costs, arriving, len(lanes))
            self._seal(lane, now, policy.trial(best, head[0], limits, costs), costs)

    def _view(self, lane: Lane, head: tuple[int, float]) -> policy.View:
        busy = idle = 0
        if len(self.lanes) > 1:
            for other in self.lanes:
                if other is not lane:
                    if other.running:
                        busy += 1
                    else:
                        idle += 1
        return policy.View(head[0], head[1], busy, idle, max(lane.queue.rows - head[0], 0))

    def _seal(self, lane: Lane, now: float, max_rows: int, costs: CostModel) -> None:
        """Cut a batch, write it into a free slot and hand it to the replica."""
        requests = self._take(lane, now, max_rows, costs)
        if not requests:
            return
        rows = 0
        for request in requests:
            rows += request.rows
            if isinstance(request, parts.Part):  # its successor goes to the back of the queue
                request.whole.submit_next()
        slot = lane.free.pop()
        try:
            members, common = [request.inputs for request in requests], None
            if self.padder is not None:
                common = self.padder.common_length(requests)
                members = self.padder.fill(requests, common)
            inputs, end = collate.collate(members, rows, lane.replica.slots[slot])
        except Exception as error:
            log.exception("a batch could not be collated")
            lane.free.append(slot)
            self._retries.alone(requests, ExecutionFailed(f"the batch could not be put together: {error}"))
            return
        self._runs += 1
        batch = Batch(requests, rows, slot, common)
        if not lane.running:
            lane.since = now
        lane.running.append((self._runs, batch))
        lane.active += len(requests)
        lane.replica.run(self._runs, slot, end, inputs)
        self._stats.batch_rows.observe(rows)
        self._stats.queue_seconds.observe_all([now - request.arrived for request in requests])

    def _take(self, lane: Lane, now: float, max_rows: int, costs: CostModel) -> list[InferRequest]:
        """The members of the next run."""
        begins = now + policy.remaining(lane.running[0][1].rows, now - lane.since, self.costs) if lane.running else now
        requests, dropped = board(lane.queue, now, begins, max_rows, self.limits, costs)
        for request, error in dropped:
            if error is None:
                self._expired(request, now)
            else:
                self._missed = self._missed or isinstance(error, TimedOut)
                self._refuse(request, error)
        return requests

    # ── answers in ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _finish(self, lane: Lane, run: int) -> Batch | None:
        if not lane.running or lane.running[0][0] != run:  # what it does run cannot be told any more
            self._owner.lane_broken(lane)
            return None
        _, batch = lane.running.popleft()
        lane.full_at = 0.0
        lane.since = monotonic()
        lane.active -= len(batch.requests)
        if lane.closed and not lane.running:
            self._forget(lane)
        return batch

    def _forget(self, lane: Lane) -> None:
        if lane in self._closing:
            self._closing.remove(lane)

    def done(self, lane: Lane, message: Done) -> None:
        """A run has ended well. The next batch goes out first, then the answers, so that the replica never waits for them; all else comes last."""
        batch = self._finish(lane, message.run)
        if batch is None:
            return
        if lane.queue.size:
            self._pump(lane)
        try:
            self._give(batch, message, lane.replica.slots[batch.slot])
        except Exception as error:  # noqa: BLE001 - a runtime may answer anything, and its callers must not wait for ever
            log.error("the outputs of a run of %d requests cannot be given to its callers: %s", len(batch.requests), error)
            self._retries.alone(batch.requests, error if isinstance(error, WakefulError) else ExecutionFailed(f"unreadable outputs: {error}"))
        lane.free.append(batch.slot)
        self._learn(batch, message.seconds)
        self._pump(lane)

    def _give(self, batch: Batch, message: Done, slot: Slot) -> None:
        """Each caller gets its own rows. Raises whatever is wrong with the outputs."""
        requests = batch.requests
        view = slot.written(max([p.offset + p.nbytes for p in message.outputs], default=0))
        if len(requests) == 1:
            if self.padder is not None:
                self.padder.learn(requests[0], message.outputs)
            answers = [collate.whole(message.outputs, view)]
        else:
            answers = collate.cut(message.outputs, [request.rows for request in requests], view)
        if self.padder is not None:
            answers = self.padder.cut(requests, answers, batch.common)
        for request, outputs in zip(requests, answers, strict=True):
            self._answer(request, outputs, message.seconds)

    def _learn(self, batch: Batch, seconds: float) -> None:
        self._stats.run_seconds.observe(seconds)
        self._group_costs.observe(batch.requests[0].group, batch.rows, seconds)
        self.rate.suit(self.costs)
        if self.costs.runs > policy.Allowance.BEGINS:
            first, missed, self._missed = batch.requests[0], self._missed, False
            took = monotonic() - first.arrived
            self.punctuality.observe(math.inf if missed else took / (first.deadline - first.arrived))
            if self.limits.target_p99 is not None:
                self.allowance.observe(took / self.limits.target_p99)

    def failed(self, lane: Lane, message: Failed) -> None:
        """A run has failed. Members of a merged run are tried alone, so that only the culprit fails."""
        batch = self._finish(lane, message.run)
        if batch is None:
            return
        lane.free.append(batch.slot)
        self._retries.failed(batch, message)
        self._pump(lane)

    # ── deadlines ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _watch_deadline(self, deadline: float) -> None:
        """One timer for the nearest deadline; most requests are answered long before, so it fires rarely."""
        self._next_deadline = deadline
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._deadline_timer = self._loop.call_later(max(deadline - monotonic(), 0.0), self._expire)

    def _expired(self, request: InferRequest, now: float) -> None:
        self._missed = self._missed or not request.left
        self._drop(request, now)

    def _drop_forsaken(self, now: float) -> float:
        """Settle whatever waits in vain, its caller gone or its time up. Returns the earliest deadline that is left."""
        nearest = FOREVER
        for queue in (self.room, *(lane.queue for lane in self.lanes)):
            for request in queue.expire(now):
                self._expired(request, now)
            nearest = min(nearest, queue.next_deadline())
        for lane in self.lanes:
            self._schedule(lane)  # with less to wait for, or nothing
        return nearest

    def _expire(self) -> None:
        now = monotonic()
        nearest = self._drop_forsaken(now)
        for lane in (*self.lanes, *self._closing):
            for _, batch in lane.running:
                for request in batch.requests:
                    if request.settled:
                        continue
                    if request.deadline <= now:
                        self._refuse(request, TimedOut(f"the deadline passed after {now - request.arrived:.3f} s, during the run"))
                    else:
                        nearest = min(nearest, request.deadline)
            self._doubts.look_at(lane)
        self._deadline_timer = None
        self._next_deadline = FOREVER
        if nearest < FOREVER:
            self._watch_deadline(nearest)
