"""Conditions of objects, and times as Kubernetes writes them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

LONGEST = 1024
"""Characters of a message: it is read in a terminal, and kept in etcd."""


class Condition(NamedTuple):
    """`reason` is one word for programs, `message` a sentence for people: what, why, and what to do."""

    type: str
    holds: bool
    reason: str
    message: str


def written(conditions: Iterable[Condition], previous: Mapping[str, Any], generation: int, now: float) -> list[dict[str, Any]]:
    """As they stand in a status. The time of the last transition is kept where the answer is the same as in `previous`, the status of before."""
    before = {condition["type"]: condition for condition in previous.get("conditions", ())}
    lines = []
    for condition in conditions:
        status = "True" if condition.holds else "False"
        earlier = before.get(condition.type, {})
        since = earlier["lastTransitionTime"] if earlier.get("status") == status else time_text(now)
        message = condition.message if len(condition.message) <= LONGEST else f"{condition.message[: LONGEST - 3]}..."
        lines.append({
            "type": condition.type, "status": status, "reason": condition.reason, "message": message, "observedGeneration": generation,
            "lastTransitionTime": since,
        })
    return lines


def time_text(seconds: float) -> str:
    """2026-11-30T12:00:00Z"""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """Raises ValueError for what is no time."""
    return datetime.fromisoformat(text).timestamp()
