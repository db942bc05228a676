"""Who has to go so that a model can be loaded: a complete set of victims, or a refusal and nobody goes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from wakeful.telemetry.units import show_bytes, show_seconds

NAMED_IN_REASON = 6
"""Models that a refusal names before it only counts."""


class Candidate(NamedTuple):
    """A loaded replica. All replicas of a model must be listed, evictable or not, but none of the model that is to be loaded."""

    model: str
    replica: int
    bytes: int
    """Its own pages, freed when it goes."""
    shared: int
    """The model's weights, freed when its last replica goes; the same for all its replicas."""
    last_used: float
    idle: bool
    pinned: bool
    loaded_at: float
    min_residency: float
    loaded: bool = True
    """False while it is on its way."""

    @property
    def resident_until(self) -> float:
        return self.loaded_at + self.min_residency


class Plan(NamedTuple):
    """Evict these, in this order; nobody when there is room."""

    victims: tuple[Candidate, ...]
    reason: str


class Refusal(NamedTuple):
    """It cannot be done now. `retry_at` is when it can if nothing else changes; None: unknown or never."""

    reason: str
    retry_at: float | None


def plan(
    need: int, free: int, candidates: Sequence[Candidate], now: float, budget: int | None = None, *, busy_too: bool = False
) -> Plan | Refusal:
    """Find room for `need` bytes where `free` are left (negative: already over) of a whole of `budget`.

    Victims are idle, not pinned and past their minimum residency, the least recently used first, and no more than needed: none of
    them could be left out. `busy_too`: after the idle ones those may go that are busy, once they have finished their runs.
    """
    missing = need - free
    if missing <= 0:
        return Plan((), _figures(need, free))
    if budget is not None and need > budget:
        return Refusal(f"needs {show_bytes(need)}, budget {show_bytes(budget)}", None)
    replicas = _replicas_of(candidates)
    evictable = [one for one in _by_age(candidates) if not one.pinned and (one.idle or (busy_too and one.loaded))]
    victims = _enough([candidate for candidate in evictable if candidate.resident_until <= now], missing, replicas)
    if victims is None:
        return Refusal(f"{_figures(need, free)}; {_excuses(candidates, now)}", _retry_at(evictable, missing, replicas, now))
    names = ", ".join(f"{victim.model}#{victim.replica} ({_pastime(victim, now)})" for victim in victims)
    return Plan(tuple(victims), f"{_figures(need, free)}; evicts {names} for {show_bytes(_freed(victims, replicas))}")


def _pastime(victim: Candidate, now: float) -> str:
    return f"idle {show_seconds(now - victim.last_used)}" if victim.idle else "busy"


def _figures(need: int, free: int) -> str:
    needed, there = show_bytes(need), show_bytes(free)
    short = f", {show_bytes(need - free)} short" if needed == there and need > free else ""
    return f"needs {needed}, free {there}{short}"


def _replicas_of(candidates: Iterable[Candidate]) -> dict[str, int]:
    count: dict[str, int] = {}
    for candidate in candidates:
        count[candidate.model] = count.get(candidate.model, 0) + 1
    return count


def _freed(victims: Sequence[Candidate], replicas: dict[str, int]) -> int:
    """Bytes that come free when all of these go."""
    left = dict(replicas)
    freed = 0
    for victim in victims:
        left[victim.model] -= 1
        freed += victim.bytes + (0 if left[victim.model] else victim.shared)
    return freed


def _by_age(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The idle ones before the busy ones, the least recently used first, but of one model a copy before the replica it was copied from."""
    ages: list[tuple[tuple[bool, float], str, int, Candidate]] = []
    latest: dict[str, tuple[bool, float]] = {}
    for candidate in sorted(candidates, key=lambda candidate: -candidate.replica):
        busy, used = latest.get(candidate.model, (False, candidate.last_used))
        age = latest[candidate.model] = (busy or not candidate.idle, max(candidate.last_used, used))
        ages.append((age, candidate.model, -candidate.replica, candidate))
    return [candidate for *_, candidate in sorted(ages)]


def _enough(ordered: Sequence[Candidate], missing: int, replicas: dict[str, int]) -> list[Candidate] | None:
    """The shortest beginning of `ordered` that frees enough, without those that a later, larger one made superfluous; None: not enough."""
    victims: list[Candidate] = []
    for candidate in ordered:
        victims.append(candidate)
        if _freed(victims, replicas) >= missing:
            break
    else:
        return None
    for candidate in reversed(victims[:-1]):  # spare the most recently used
        others = [victim for victim in victims if victim is not candidate]
        if _freed(others, replicas) >= missing:
            victims = others
    return victims


def _retry_at(evictable: Sequence[Candidate], missing: int, replicas: dict[str, int], now: float) -> float | None:
    """When enough of the idle ones have had their minimum residency."""
    for moment in sorted({candidate.resident_until for candidate in evictable if candidate.resident_until > now}):
        if _freed([candidate for candidate in evictable if candidate.resident_until <= moment], replicas) >= missing:
            return moment
    return None


def excuse(candidate: Candidate, now: float) -> str:
    """Why it stays, whatever it could give; empty: it may go."""
    if candidate.pinned:
        return "pinned"
    if not candidate.idle:
        return "busy"
    if candidate.resident_until > now:
        return f"in its first {show_seconds(candidate.min_residency)} for another {show_seconds(candidate.resident_until - now)}"
    return ""


def _excuses(candidates: Iterable[Candidate], now: float) -> str:
    """Why each model stays, the strongest reason of its replicas for each."""
    excuses: dict[str, str] = {}
    for candidate in sorted(candidates):
        why = excuse(candidate, now) or "idle but too small"
        excuses.setdefault(candidate.model, f"{candidate.model} {why}")
    if not excuses:
        return "no other model is loaded"
    named = list(excuses.values())[:NAMED_IN_REASON]
    if len(excuses) > NAMED_IN_REASON:
        named.append(f"and {len(excuses) - NAMED_IN_REASON} more")
    return ", ".join(named)


class Thrash:
    """Notices models that are evicted and soon loaded again: the budget is too small for the traffic."""

    def __init__(self, factor: float = 3.0) -> None:
        self._factor = factor
        """How many times its minimum residency a model must stay away for its return to be no surprise."""
        self._evicted: dict[str, float] = {}
        self.count = 0

    def evicted(self, model: str, now: float) -> None:
        """The model's last replica had to make room."""
        self._evicted[model] = now

    def loaded(self, model: str, now: float, min_residency: float) -> bool:
        """The model is back; True if so soon that this is thrashing. Each eviction counts once."""
        since = self._evicted.pop(model, None)
        thrashing = since is not None and now - since <= self._factor * min_residency
        self.count += thrashing
        return thrashing
