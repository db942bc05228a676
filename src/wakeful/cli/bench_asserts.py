"""`--assert 'p99<20ms'`: bounds that the figures of a run must keep, for machines that build and test."""

import math
import operator
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from typing import NamedTuple

from wakeful.loadgen.summary import Facts
from wakeful.telemetry.units import show_seconds

_FORM = re.compile(r"\s*(p\d{1,2}(?:\.\d+)?|mean|max|done|rows|failed)\s*(<=|>=|<|>)\s*([0-9.]+)\s*(us|ms|s|%)?\s*")
RATES = ("done", "rows", "failed")
"""Those that are no times."""
_SECONDS: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Bound(NamedTuple):
    """A figure and what it must be."""

    text: str
    figure: str
    """p50, p99.9, max, mean: seconds; done, rows: answers and their rows a second; failed: a share where `share`, else how many."""
    order: str
    limit: float
    share: bool = False

    def value(self, facts: Facts) -> float:
        """NaN where there were no answers to measure."""
        match self.figure:
            case "done":
                return facts.done
            case "rows":
                return facts.rows
            case "failed":
                return facts.failed / max(facts.calls, 1) if self.share else float(facts.failed)
            case "mean":
                return facts.mean
            case percentile:
                return facts.percentile(100.0 if percentile == "max" else float(percentile[1:]))

    def holds(self, value: float) -> bool:
        return not math.isnan(value) and _ORDERS[self.order](value, self.limit)

    def told(self, value: float) -> str:
        if math.isnan(value):
            shown = "nothing was answered"
        elif self.figure in RATES:
            shown = f"{100 * value:.3g} %" if self.share else f"{value:.4g}"
        else:
            shown = show_seconds(value)
        return f"assert {self.text}: {shown}{'' if self.holds(value) else ', which is not so'}"


def bound(text: str) -> Bound:
    """Type of an option: "p99<20ms", "done>900", "failed<=0.1%"."""
    match = _FORM.fullmatch(text)
    if match is None or match[3].count(".") > 1 or match[3] == ".":
        raise ArgumentTypeError(f"{text!r}: expected such as p99<20ms, mean<5ms, max<1s, done>900, rows>5000 (a second) or failed<=0.1%")
    figure, order, number, unit = match.groups()
    timed = figure not in RATES
    if timed != (unit in _SECONDS) or (unit == "%" and figure != "failed"):
        raise ArgumentTypeError(f"{text!r}: {figure} takes {'us, ms or s' if timed else '% or no unit' if figure == 'failed' else 'no unit'}")
    factor = _SECONDS.get(unit, 0.01 if unit == "%" else 1.0)
    return Bound(re.sub(r"\s+", "", text), figure, order, float(number) * factor, share=unit == "%")
