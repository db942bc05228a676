"""When calls are due: seconds from the beginning, in order. Pure, and the same again for the same seed.

An open loop sends at these moments however late the server is; that is what people do who do not know of each other.
"""

import math
from array import array
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from wakeful.errors import InvalidInput


def poisson(rate: float, seconds: float, seed: int = 1) -> "array[float]":
    """Independent callers who make `rate` calls a second together."""
    return steps([(seconds, rate)], seed)


def bursts(low: float, high: float, period: float, duty: float, seconds: float, seed: int = 1) -> "array[float]":
    """Poisson arrivals at the rate `high` during the first `duty` (0..1) of every period, and at the rate `low` in the rest of it."""
    if not (period > 0 and 0 <= duty <= 1):
        raise InvalidInput.field("bursts", "a period over 0 and a duty of 0 to 1", f"{period:g} and {duty:g}")
    plan = [(period * duty, high), (period * (1 - duty), low)] * math.ceil(seconds / period)
    due = steps(plan, seed)
    return due[: int(np.searchsorted(np.frombuffer(due), seconds))] if due else due


def steps(plan: Iterable[tuple[float, float]], seed: int = 1) -> "array[float]":
    """Poisson arrivals whose rate changes: (seconds, rate) one after the other."""
    random = np.random.default_rng(seed)
    begin, pieces = 0.0, []
    for seconds, rate in plan:
        # Given how many come, the arrivals of a Poisson process are that many independent uniform moments.
        pieces.append(begin + np.sort(random.random(random.poisson(max(rate, 0.0) * seconds))) * seconds)
        begin += seconds
    return array("d", np.concatenate(pieces).tobytes()) if pieces else array("d")


def read_trace(path: Path | str) -> "array[float]":
    """Arrivals from a file: a moment in seconds a line, in any order; the first becomes 0. What follows the number, and lines that begin
    with #, are comments.

    Raises InvalidInput with the line that is no number.
    """
    due: list[float] = []
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), 1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            moment = float(words[0])
        except ValueError:
            moment = math.nan
        if not math.isfinite(moment):
            raise InvalidInput.field(f"{path}, line {number}", "a moment in seconds", repr(words[0]))
        due.append(moment)
    due.sort()
    return array("d", (moment - due[0] for moment in due))
