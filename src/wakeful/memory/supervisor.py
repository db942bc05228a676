"""Room for replicas: who may load now, who has to go for it, and who waits.

The supervisor owns the sums and the order of the waiting; `eviction` decides who goes. It never waits itself: it is told when something has been
freed, has become idle or was measured, and looks again.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from wakeful.clock import monotonic
from wakeful.errors import OutOfMemory, WakefulError
from wakeful.memory import eviction, forecast
from wakeful.memory.budget import Memory, headroom
from wakeful.memory.eviction import Candidate, Refusal
from wakeful.telemetry.events import Events, Figure
from wakeful.telemetry.metrics import UnloadReason
from wakeful.telemetry.units import show_bytes

TURN_PATIENCE = 1.0
"""Seconds that the first replica of a model waits for others to become idle. After that busy ones that have had their minimum residency go too, so
that two models which do not fit together are served in turns; and of those that wait, whoever has waited longest has a claim."""

LOOKING = 0.1
"""Share of the event loop's time that looks may take: where 40 models wait beside 40 loaded ones, one takes 10 ms, and each run that ends asks for
one."""


class Claim(NamedTuple):
    """Of the first replica of a model that has waited longest. Those behind it may be let in only where it finds room without their leaving, or
    a large model would wait for ever among small ones that always find room for themselves."""

    tenant: "Tenant"
    since: float
    """Who has got its room later is counted as if it stayed."""


class Standing(NamedTuple):
    """What makes a loaded replica a better or worse victim."""

    last_used: float
    idle: bool
    pinned: bool
    min_residency: float
    loaded: bool = True
    """False while it is on its way."""
    going: bool = False
    """It is finishing its last runs."""


class Tenant:
    """A replica that has room, or asks for it. Its group gives the callables; the supervisor owns the rest."""

    __slots__ = (
        "asked", "bytes", "counts", "entered", "evict", "granted", "least", "leaving", "loaded_at", "model", "primary", "promised", "refused",
        "replica", "shared", "standing", "waited",
    )

    def __init__(
        self,
        model: str,
        replica: int,
        estimate: int,
        *,
        least: int,
        primary: bool,
        granted: Callable[[], None],
        refused: Callable[[WakefulError], None],
        evict: Callable[[UnloadReason], None],
        standing: Callable[[], Standing],
        counts: bool = True,
    ) -> None:
        self.model = model
        self.replica = replica
        self.bytes = estimate
        """Bytes of its own: the estimate, until it is measured."""
        self.least = least
        """Bytes that it surely needs: the estimate may be a guess, and alone keeps out nobody who could have all that others may give up."""
        self.shared = 0
        """Bytes that it shares with the other replicas of its model."""
        self.primary = primary
        """The first replica of its model waits for room; a further one is refused at once, since the model can do without."""
        self.granted = granted
        self.refused = refused
        self.evict = evict
        self.standing = standing
        self.counts = counts
        """Does it take one of `max_loaded_models`?"""
        self.asked = monotonic()
        self.entered = self.loaded_at = self.asked
        """When room was found for it, and when it was ready."""
        self.leaving = False
        """It has been evicted, and may still hold its memory."""
        self.promised = False
        """It waits for others to leave, and what they free is its own."""
        self.waited = 0.0
        """Seconds that it waited for room."""

    @property
    def going(self) -> bool:
        return self.leaving or self.standing().going


class Room(NamedTuple):
    """What was decided about a tenant that asks for some."""

    need: int
    free: int
    candidates: Sequence[Candidate]
    """Who might have gone."""
    victims: Mapping[Candidate, UnloadReason] = MappingProxyType({})
    """Who has to go for it, and why."""
    reason: str = ""
    refusal: Refusal | None = None
    possible: bool = True
    """False: not even the leaving of all that may ever go would help."""


class Supervisor:
    """One for the daemon."""

    def __init__(
        self, budget: int, max_loaded: int | None, read_memory: Callable[[], Memory], events: Events, margin: int = 0, *, limited: bool = False,
    ) -> None:
        """`limited`: each process has a limit of its own."""
        self._limited = limited
        self.budget = budget
        self.margin = margin
        """Bytes of the machine, or of the container, that are never given to a model."""
        self.max_loaded = max_loaded
        self.thrash = eviction.Thrash()
        self._read_memory = read_memory
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._tenants: set[Tenant] = set()
        """Loaded, loading, or promised room that victims are about to free."""
        self._waiting: list[Tenant] = []
        """In the order of asking."""
        self._claim: Claim | None = None
        self._over = ""
        """A model that was found to hold more than was expected, so that all together hold more than the budget; empty: they do not."""
        self._next_look = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def loaded(self) -> int:
        """Replicas of all models that are loaded or loading, without those that are about to go or only help a model."""
        return sum(tenant.counts and not tenant.going for tenant in self._tenants)

    @property
    def resident(self) -> int:
        """Bytes that all replicas hold now, shared weights once per model."""
        return _total(tenant for tenant in self._tenants if not tenant.promised)

    @property
    def expected(self) -> int:
        """The same once all have gone who are about to, and all have loaded who may."""
        return _total(tenant for tenant in self._tenants if not tenant.going)

    def resident_of(self, model: str) -> int:
        return _total(tenant for tenant in self._tenants if tenant.model == model and not tenant.promised)

    def resident_by_model(self) -> dict[str, int]:
        """The same of each."""
        by_model: dict[str, list[Tenant]] = {}
        for tenant in self._tenants:
            if not tenant.promised:
                by_model.setdefault(tenant.model, []).append(tenant)
        return {model: _total(tenants) for model, tenants in by_model.items()}

    def holders(self) -> set[str]:
        """Models with replicas, those that wait for room among them."""
        return {tenant.model for tenant in (*self._tenants, *self._waiting)}

    def shared_of(self, model: str) -> int:
        """Bytes that the replicas of a model share."""
        return max((tenant.shared for tenant in self._tenants if tenant.model == model), default=0)

    def oldest_load(self) -> float:
        """Seconds that the longest waiting replica has waited for room, that of victims who have not gone yet included."""
        asked = [*(tenant.asked for tenant in self._waiting[:1]), *(tenant.asked for tenant in self._tenants if tenant.promised)]
        return monotonic() - min(asked) if asked else 0.0

    # ── what groups say ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def admit(self, tenant: Tenant) -> None:
        """Find room: `granted` or `refused` is called, now or later."""
        self._waiting.append(tenant)
        if not self.look():
            self._try(tenant, self._read_memory().available)

    def measured(self, tenant: Tenant, own: int, shared: int) -> None:
        """The replica is loaded, or has grown."""
        tenant.bytes, tenant.shared = own, shared
        if self.expected > self.budget:
            self._over = tenant.model
        self.look()

    def loaded_now(self, tenant: Tenant) -> None:
        """The replica is ready: its minimum residency begins."""
        now = tenant.loaded_at = monotonic()
        if tenant.primary and self.thrash.loaded(tenant.model, now, tenant.standing().min_residency):
            self._events.emit("load", tenant.model, "thrashing: it is needed again right after it was evicted; the budget is small for this traffic")

    def release(self, tenant: Tenant) -> None:
        """The replica has gone, or no longer asks."""
        self._tenants.discard(tenant)
        if tenant in self._waiting:
            self._waiting.remove(tenant)
        if any(other.promised for other in self._tenants):
            self._keep_promises(self._read_memory().available)
        self.look()

    def look(self) -> bool:
        """Look again at everybody who waits: now, or where that would be too often, somewhat later. Cheap when nobody waits."""
        if not self._waiting and not self._over:
            return True
        now = monotonic()
        if now < self._next_look:
            self._look_at(self._next_look)
            return False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._over:
            self._shed(now)
        available = self._read_memory().available if self._waiting else 0  # once, since it takes about a millisecond
        for tenant in self._waiting.copy():
            if tenant in self._waiting:
                self._try(tenant, available)
                self._let_claim(tenant)
        end = monotonic()
        self._next_look = end + (end - now) * (1 / LOOKING - 1)
        if self._waiting:
            self._look_at(end + TURN_PATIENCE)
        return True

    def relieve(self, model: str) -> bool:
        """Memory has run out although the sums said otherwise: evict the least recently used idle replica of another model, if there is one.

        Young ones too. None where processes have a limit of their own, which nobody's leaving raises.
        """
        if self._limited:
            return False
        now = monotonic()
        candidates = [candidate._replace(min_residency=0.0) for candidate in self._candidates(model)]
        decision = eviction.plan(1, 0, candidates, now)
        if isinstance(decision, Refusal):
            return False
        for victim in self._of(decision.victims):
            self._evict(victim, model, "oom", "an allocation failed")
        return True

    # ── deciding ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _try(self, tenant: Tenant, available: int) -> None:
        now = monotonic()
        room = self._room_for(tenant, available, now)
        if room.refusal is not None:
            self._refuse_or_wait(tenant, room.refusal, possible=room.possible)
            return
        self._waiting.remove(tenant)
        self._tenants.add(tenant)
        tenant.bytes = room.need
        tenant.entered = now
        tenant.promised = True
        passed_over = forecast.passed_over(list(room.victims), room.candidates, now) if room.victims else ""
        short = max(room.need - room.free, 0)
        for victim, reason in zip(self._of(tuple(room.victims)), room.victims.values(), strict=True):
            self._evict(
                victim, tenant.model, reason, room.reason, short_bytes=short, waited_seconds=now - tenant.asked, passed_over=passed_over,
            )
        self._keep_promises(available)

    def _room_for(self, tenant: Tenant, available: int, now: float) -> Room:
        """Decide, and do nothing."""
        candidates = self._candidates(tenant.model)
        expected = self.expected
        free = headroom(self.budget, expected, available + self.resident - expected, self.margin)
        most = free + _movable(candidates)
        need = _need(tenant, most)
        plan = self._plan(tenant, need, free, candidates, now, self.budget)
        if isinstance(plan, Refusal):
            return Room(need, free, candidates, refusal=plan, possible=need <= most)
        if refusal := self._against_claim(tenant, need, free, plan.victims):
            return Room(need, free, candidates, refusal=refusal)
        victims: dict[Candidate, UnloadReason] = dict.fromkeys(plan.victims, "lru")
        if self.max_loaded is not None and tenant.counts and not tenant.standing().pinned:
            counted = self._candidates(tenant.model, counted=True)
            units = [candidate._replace(bytes=1, shared=0) for candidate in counted if candidate not in plan.victims]
            place = self._plan(tenant, 1, self.max_loaded - self.loaded + len(counted) - len(units), units, now, None)
            if isinstance(place, Refusal):
                reason = f"{self.loaded} replicas are loaded (max_loaded_models {self.max_loaded}) and none can go now"
                possible = self.max_loaded - self.loaded + _movable(units) >= 1
                return Room(need, free, candidates, refusal=Refusal(reason, place.retry_at), possible=possible)
            places = {(victim.model, victim.replica) for victim in place.victims}
            victims |= {one: "capacity" for one in candidates if (one.model, one.replica) in places}
        return Room(need, free, candidates, victims, plan.reason)

    def forecast(self, tenant: Tenant, *, measured: bool) -> forecast.Forecast:
        """What `admit` would decide about it now. Nothing is done, and nobody is asked to go. `measured`: its bytes are."""
        now = monotonic()
        room = self._room_for(tenant, self._read_memory().available, now)
        victims = forecast.victims_of(list(room.victims.items()), room.candidates, now)
        staying = forecast.staying_of(list(room.victims), room.candidates, now)
        refusal, retry_at = (None, None) if room.refusal is None else room.refusal
        retry_in = None if retry_at is None else max(retry_at - now, 0.0)
        return forecast.Forecast(room.need, measured, room.free, self.budget, victims, staying, refusal, retry_in)

    def _shed(self, now: float) -> None:
        """Get back below the budget: models whose size nobody knew have loaded side by side. Who alone is larger than it stays, since nothing is
        won by that one's leaving but its refusal."""
        excess = self.expected - self.budget
        if excess <= 0:
            self._over = ""
            return
        candidates = [one for one in self._candidates("") if one.bytes + one.shared <= self.budget]
        decision = eviction.plan(0, -excess, candidates, now)
        if isinstance(decision, Refusal):
            if decision.retry_at is not None:
                self._look_at(decision.retry_at)
            return
        for victim in self._of(decision.victims):
            self._evict(victim, self._over, "lru", f"it is larger than was expected, and all together are {show_bytes(excess)} over the budget")
        self._over = ""

    def _let_claim(self, tenant: Tenant) -> None:
        """It has been tried, in the order of asking: has it waited longest, and for long enough?"""
        now = monotonic()
        if not self._claimed() and tenant in self._waiting and tenant.primary and now - tenant.asked >= TURN_PATIENCE:
            self._claim = Claim(tenant, now)

    def _claimed(self) -> bool:
        return self._claim is not None and self._claim.tenant in self._waiting

    def _against_claim(self, newcomer: Tenant, need: int, free: int, victims: Sequence[Candidate]) -> Refusal | None:
        """Why the newcomer has to stand back; None: whoever has the claim will find room even if the newcomer stays for ever."""
        claim = self._claim
        if claim is None or claim.tenant is newcomer or not self._claimed():
            return None
        before = {(tenant.model, tenant.replica) for tenant in self._tenants if tenant.entered <= claim.since}
        candidates = self._candidates(claim.tenant.model)
        later = free - need + _movable([one for one in candidates if one in victims or (one.model, one.replica) in before])
        if later >= _need(claim.tenant, free + _movable(candidates)):
            return None
        return Refusal(f"needs {show_bytes(need)}, free {show_bytes(free)}, and {claim.tenant.model} has waited longer", None)

    def _keep_promises(self, available: int) -> None:
        """Let those begin whose room is really free now: what goes holds its memory until it has gone."""
        promised = [tenant for tenant in self._tenants if tenant.promised]
        for tenant in sorted(promised, key=lambda tenant: tenant.asked):
            if tenant.promised and tenant in self._tenants and self._is_free_for(tenant, available):  # granting may release others
                tenant.promised = False
                tenant.waited = monotonic() - tenant.asked
                tenant.granted()

    def _is_free_for(self, tenant: Tenant, available: int) -> bool:
        going = [other for other in self._tenants if other.going]
        if not going:
            return True
        limit = self.max_loaded if tenant.counts and not tenant.standing().pinned else None
        if limit is not None and self.loaded + sum(other.counts for other in going) > limit:
            return False
        return tenant.bytes <= headroom(self.budget, self.resident, available, self.margin)

    def _plan(
        self, tenant: Tenant, need: int, free: int, candidates: list[Candidate], now: float, budget: int | None
    ) -> eviction.Plan | Refusal:
        return eviction.plan(need, free, candidates, now, budget, busy_too=tenant.primary and now - tenant.asked >= TURN_PATIENCE)

    def _refuse_or_wait(self, tenant: Tenant, refusal: Refusal, *, possible: bool) -> None:
        """A further replica is refused at once. A first one waits, unless not even the leaving of all that may ever go would help."""
        if not tenant.primary or not possible:
            self._waiting.remove(tenant)
            tenant.refused(OutOfMemory(f"out of memory: {tenant.model} {refusal.reason}"))
        elif refusal.retry_at is not None:
            self._look_at(refusal.retry_at)

    def _candidates(self, model: str, *, counted: bool = False) -> list[Candidate]:
        """Who may go for a model; `counted`: of those alone that take one of `max_loaded_models`."""
        candidates = []
        for tenant in self._tenants:
            if tenant.model != model and not tenant.going and (tenant.counts or not counted):
                standing = tenant.standing()
                candidates.append(
                    Candidate(
                        tenant.model, tenant.replica, tenant.bytes, tenant.shared, standing.last_used, standing.idle, standing.pinned,
                        tenant.loaded_at, standing.min_residency, standing.loaded,
                    )
                )
        return candidates

    def _of(self, candidates: tuple[Candidate, ...]) -> list[Tenant]:
        staying = {(tenant.model, tenant.replica): tenant for tenant in self._tenants if not tenant.going}
        return [staying[candidate.model, candidate.replica] for candidate in candidates]

    def _evict(self, victim: Tenant, for_model: str, reason: UnloadReason, why: str, **newcomer: Figure) -> None:
        now, standing = monotonic(), victim.standing()
        victim.leaving = True
        if victim.primary:
            self.thrash.evicted(victim.model, now)
        last = all(other.going for other in self._tenants if other.model == victim.model)
        freed = victim.bytes + (victim.shared if last else 0)
        text = f"#{victim.replica} -{show_bytes(freed)}, {reason}, for {for_model}: {why}"
        self._events.emit(
            "evict", victim.model, text, bytes=freed, reason=reason, wanted_by=for_model, replica=victim.replica, busy=not standing.idle,
            pinned=standing.pinned, loaded_seconds=now - victim.loaded_at, min_residency_seconds=standing.min_residency, **newcomer,
        )
        victim.evict(reason)

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.when() - self._loop.time() <= when - monotonic():
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(max(when - monotonic(), 0.01), self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.look()


def _need(tenant: Tenant, most: int) -> int:
    """Bytes to be found for it, of `most` that it could have if all others left: a guess asks for no more than there is."""
    return min(tenant.bytes, max(tenant.least, most))


def _movable(candidates: list[Candidate]) -> int:
    """Bytes of all that may ever be evicted."""
    evictable = [candidate for candidate in candidates if not candidate.pinned]
    return sum(candidate.bytes for candidate in evictable) + sum({candidate.model: candidate.shared for candidate in evictable}.values())


def _total(tenants: Iterable[Tenant]) -> int:
    """Bytes of these replicas, what they share counted once per model."""
    own, shared = 0, dict[str, int]()
    for tenant in tenants:
        own += tenant.bytes
        shared[tenant.model] = max(tenant.shared, shared.get(tenant.model, 0))
    return own + sum(shared.values())
