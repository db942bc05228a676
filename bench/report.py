"""Rows of the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Plot:
    """A picture that a row hands over. It is drawn as PNG and SVG, named after the row's letter and `name`."""

    name: str
    title: str
    series: Mapping[str, Sequence[tuple[float | str, float]]]
    """Points by what the legend calls them. Bars: x are the labels, in the order of the first series."""
    x: str = ""
    y: str = ""
    kind: Literal["bars", "lines"] = "lines"
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Row:
    """One line of the headline table, and all runs behind it."""

    letter: str
    title: str
    target: str
    measured: str
    reached: bool | None
    """None: cannot be measured here; `note` says why."""
    details: list[Mapping[str, object]] = field(default_factory=list)
    """One flat mapping a run: a line of the row's table."""
    note: str = ""
    plots: tuple[Plot, ...] = ()
    near: bool = False
    """Not reached, but within a tenth of it."""
