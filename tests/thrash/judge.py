"""What evictions must never be, told from their events: those of the supervisor alone, and those in a daemon's log."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from wakeful.memory.supervisor import TURN_PATIENCE

ROUNDING = 1e-6
Figures = Mapping[str, Any]
"""Of one eviction."""


def unlawful(evictions: Iterable[Figures]) -> list[str]:
    """In the order in which they happened. A busy one may go only for a model that has waited for its turn, and then finishes its runs."""
    problems = []
    decisions = groupby(evictions, key=lambda figures: (figures["wanted_by"], figures["waited_seconds"], figures["short_bytes"]))
    for (newcomer, waited, short), group in decisions:
        victims = list(group)
        for figures in victims:
            if figures["pinned"]:
                problems.append(f"a pinned one went for {newcomer}")
            if figures["loaded_seconds"] < figures["min_residency_seconds"] - ROUNDING:
                problems.append(f"one was evicted {figures['loaded_seconds']} s after its load")
            if figures["busy"] and waited < TURN_PATIENCE - ROUNDING:
                problems.append(f"a busy one went for {newcomer}, which had waited only {waited} s")
        freed = [figures["bytes"] for figures in victims if figures["reason"] == "lru"]
        if freed and not sum(freed) - min(freed) < short <= sum(freed):
            problems.append(f"{freed} went where {short} were missing")
        if len(victims) - len(freed) > 1:
            problems.append(f"{len(victims) - len(freed)} went where one place was missing")
    return problems


def most_loads(budget: int, smallest: int, seconds: float, residency: float) -> float:
    """Loads in so many seconds, where each keeps at least `smallest` of `budget` bytes for `residency` seconds."""
    return budget // smallest * (seconds / residency + 1)
