"""What would happen if a model were loaded now: the same decision as for a real load, in words, and nothing follows from it."""

from collections.abc import Sequence
from typing import NamedTuple

from wakeful.memory.eviction import Candidate, excuse
from wakeful.telemetry.units import show_bytes, show_seconds


class Victim(NamedTuple):
    """A model that would have to go, or some of its replicas."""

    model: str
    bytes: int
    """That would be free."""
    text: str
    """Why it, of all."""


class Staying(NamedTuple):
    model: str
    text: str
    """Why it would not have to go."""


class Forecast(NamedTuple):
    needs: int
    """Bytes."""
    measured: bool
    """False: they are only expected."""
    free: int
    """Bytes, before anybody goes; negative where models hold more than they may."""
    budget: int
    evict: Sequence[Victim]
    keep: Sequence[Staying]
    refusal: str | None
    """Why it cannot be now; None: it can."""
    retry_in: float | None = None
    """Seconds until it can, if nothing else changes; None: it can now, or nobody knows."""


def victims_of(victims: Sequence[tuple[Candidate, str]], candidates: Sequence[Candidate], now: float) -> list[Victim]:
    """`victims`: each with the reason for which it goes. What its replicas share comes free with the last of them."""
    left: dict[str, int] = {}
    for candidate in candidates:
        left[candidate.model] = left.get(candidate.model, 0) + 1
    freed: dict[str, tuple[int, str]] = {}
    for victim, reason in victims:
        left[victim.model] -= 1
        so_far, text = freed.get(victim.model, (0, ""))
        freed[victim.model] = so_far + victim.bytes + (0 if left[victim.model] else victim.shared), text or _why(victim, reason, now)
    return [Victim(model, size, text) for model, (size, text) in freed.items()]


def _why(victim: Candidate, reason: str, now: float) -> str:
    pastime = f"idle {show_seconds(now - victim.last_used)}" if victim.idle else "busy, once its runs have ended"
    return f"{'least recently used' if reason == 'lru' else 'max_loaded_models is reached'}, {pastime}"


def staying_of(victims: Sequence[Candidate], candidates: Sequence[Candidate], now: float) -> list[Staying]:
    """Models of which nobody goes, each with the strongest reason of its replicas."""
    going = {victim.model for victim in victims}
    latest = max((victim.last_used for victim in victims), default=None)
    found: dict[str, str] = {}
    for candidate in sorted(candidates):
        if candidate.model in going:
            continue
        later = latest is not None and candidate.last_used > latest
        otherwise = "used more recently" if later else "too small" if latest is not None else "there is room"
        found.setdefault(candidate.model, excuse(candidate, now) or otherwise)
    return [Staying(model, text) for model, text in found.items()]


def passed_over(victims: Sequence[Candidate], candidates: Sequence[Candidate], now: float, most: int = 6) -> str:
    """The same for an event: those that were used longer ago than who goes, and stay all the same; empty for nobody."""
    latest = max((victim.last_used for victim in victims), default=0.0)
    older = [candidate for candidate in candidates if candidate.last_used <= latest]
    staying = staying_of(victims, older, now)
    named = [f"{one.model} ({one.text})" for one in staying[:most]]
    return ", ".join([*named, f"and {len(staying) - most} more"] if len(staying) > most else named)


def in_words(forecast: Forecast, model: str, seconds: float | None) -> str:
    """Lines for people. `seconds`: how long a wake takes, if that is known."""
    how = "measured" if forecast.measured else "expected"
    lines = [
        f"would wake {model}: needs {show_bytes(forecast.needs)} ({how}), free {show_bytes(forecast.free)} of {show_bytes(forecast.budget)}",
    ]
    if forecast.refusal is not None:
        when = f"; in {show_seconds(forecast.retry_in)} it could" if forecast.retry_in is not None else ""
        lines[0] = lines[0].replace("would wake", "cannot wake", 1)
        lines.append(f"because {forecast.refusal}{when}")
        return "\n".join(lines)
    lines += [f"would evict {one.model} ({show_bytes(one.bytes)}): {one.text}" for one in forecast.evict]
    kept = ", ".join(f"{one.model} ({one.text})" for one in forecast.keep if forecast.evict)  # where nobody goes, nobody wonders who stays
    ready = None if seconds is None else f"ready in about {show_seconds(seconds)}"
    lines += ["; ".join(part for part in (f"would keep {kept}" if kept else None, ready) if part)]
    return "\n".join(line for line in lines if line)
