"""The figures by which models are scaled: read where they were written, and joined when it is known where the model lives.

Order: the Model's `spec.autoscaling`, its Server's `spec.modelAutoscaling`, the variables of its agents (the seed's names among them), our defaults.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from wakeful.cluster.planning.world import ScaleLimits


class _Key(NamedTuple):
    """A key of `spec.autoscaling`: the field it fills, what one unit of it is there, and its range as it is written."""

    field: str
    unit: float
    lowest: int
    highest: int | None = None


KEYS = {
    "lagThreshold": _Key("lag_threshold", 1.0, 1),
    "inactiveSeconds": _Key("inactive", 1.0, 1),
    "stableSeconds": _Key("stable", 1.0, 0),
    "upCooldownSeconds": _Key("up_cooldown", 1.0, 1),
    "downWindowSeconds": _Key("down_window", 1.0, 1),
    "maxStepPercent": _Key("max_step", 0.01, 1, 400),
    "busyPercent": _Key("busy", 0.01, 10, 95),
    "holdSeconds": _Key("hold", 1.0, 0, 600),
}
DEFAULTS = ScaleLimits()
_FIELDS = frozenset(f.name for f in fields(ScaleLimits))


def read_thresholds(section: Mapping[str, Any], where: str) -> tuple[dict[str, float], tuple[str, ...]]:
    """`section` (spec.autoscaling or spec.modelAutoscaling; `where` is its path) by `ScaleLimits` field, and what is wrong with it.

    A key with an error is left out: the next place in the order decides.
    """
    found: dict[str, float] = {}
    errors: list[str] = []
    for name, value in section.items():
        key = KEYS.get(name)
        if key is None:
            errors.append(f"{where}.{name}: no such key; expected {', '.join(KEYS)}")
        elif isinstance(value, bool) or not isinstance(value, int) or value < key.lowest or (key.highest is not None and value > key.highest):
            expected = f"of at least {key.lowest}" if key.highest is None else f"from {key.lowest} to {key.highest}"
            errors.append(f"{where}.{name}: expected a whole number {expected}, not {value!r}")
        else:
            found[key.field] = value * key.unit
    return found, tuple(errors)


def limits_of(model: Mapping[str, float], server: Mapping[str, float], agent: Mapping[str, float]) -> ScaleLimits:
    """The figures that hold for a model.

    The period is the agents' own alone: it is how often they speak.
    """
    if not (model or server or agent):
        return DEFAULTS  # of nearly all, and asked for each of them in each period
    known = {name: value for name, value in agent.items() if name in _FIELDS}
    return ScaleLimits(**{**known, **server, **model})
