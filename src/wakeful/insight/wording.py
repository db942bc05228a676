"""In words, why something is as it is. Pure: from what was read and from events to text."""

from typing import Final, NamedTuple

from wakeful.memory.budget import DEFAULT_SHARE, GroupKill
from wakeful.telemetry.events import Event
from wakeful.telemetry.units import counted, show_bytes, show_seconds

LETTERS: Final = {
    "idle": "i", "lru": "l", "capacity": "c", "oom": "o", "no_gain": "n", "manual": "m", "shutdown": "s", "config": "f", "died": "x", "failed": "x",
}
"""Of the reasons for which models go to sleep, on a timeline."""
_WHY_ASLEEP = {
    "idle": "nobody had asked for it",
    "lru": "evicted: memory was needed",
    "capacity": "evicted: max_loaded_models was reached",
    "oom": "evicted: an allocation had failed",
    "no_gain": "a further replica brought no throughput",
    "manual": "put to sleep by hand",
    "shutdown": "the daemon stops",
    "config": "its file or its settings have changed",
}


class Situation(NamedTuple):
    """Of a model, as far as it decides what is said of it."""

    state: str
    error: str | None
    pinned: bool
    queue: int
    running: int
    waits_for_room: bool
    leaving: str | None
    asleep_by: str | None
    """Reason of the unload, "died", or None: it has not been awake."""
    wanted_by: str | None
    """The model for which it had to go."""


def reason_of(event: Event) -> str | None:
    """The short word by which events of a kind are told apart, if this kind has one."""
    for name in ("reason", "cause", "code"):
        word = event.figures.get(name)
        if isinstance(word, str):
            return word
    return None


def why(situation: Situation) -> str:
    """One clause; the state stands before it."""
    if situation.state == "asleep":
        return why_asleep(situation.asleep_by, situation.wanted_by)
    if situation.state == "failed":
        return situation.error or "its load has failed"
    if situation.state == "waking":
        return f"{'waits for memory' if situation.waits_for_room else 'is loaded'}, {counted(situation.queue, 'request')} waiting"
    work = in_hand(situation.queue, situation.running)
    if situation.state == "draining":
        by = {"manual": "put to sleep by hand", "config": "its file or its settings have changed"}.get(situation.leaving or "", "makes room")
        return f"{by}; {work}"
    if situation.state == "busy":
        return work
    return "pinned: it stays awake" if situation.pinned else "nothing to do"


def why_asleep(reason: str | None, wanted_by: str | None = None) -> str:
    if reason is None:
        return "nobody has asked for it yet"
    if reason == "died":
        return "its process has ended by itself"
    text = _WHY_ASLEEP.get(reason, reason)
    return f"{text} for {wanted_by}" if wanted_by and reason in ("lru", "oom") else text


def in_hand(queue: int, running: int) -> str:
    return f"{queue} queued, {running} running" if queue or running else "nothing in hand"


def source_of_budget(setting: float | None, limit: int, source: str) -> str:
    """Where the budget for models comes from."""
    whole = f"{show_bytes(limit)} ({source})"
    if isinstance(setting, int):
        return f"memory_limit; there are {whole}"
    share = f"{100 * (DEFAULT_SHARE if setting is None else setting):.10g} %"
    return f"{share} of {whole}" + (", by memory_limit" if setting is not None else "")


def of_group_kill(kill: GroupKill) -> str:
    """What it means for a daemon."""
    return f"if the kernel kills one model's process for memory, it ends this daemon too, so more is left free: {kill.text}"


def ago(seconds: float) -> str:
    return f"{show_seconds(seconds)} ago"
