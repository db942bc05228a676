"""The report: rows with all runs behind them, as Markdown and JSON. Pictures are drawn by `bench.plots`."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SIGNIFICANT = 4
"""Figures of a number in a table."""


@dataclass(frozen=True)
class Plot:
    """A picture that a row hands over. It is drawn as PNG and SVG, named after the row's letter and `name`."""

    name: str
    title: str
    series: Mapping[str, Sequence[tuple[float | str, float]]]
    """Points by what the legend calls them. Bars: x are the labels, the same ones in every series."""
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
    details: Sequence[Mapping[str, object]] = ()
    """One flat mapping a run: a line of the row's table. Lines with other keys become a further table."""
    note: str = ""
    plots: tuple[Plot, ...] = ()
    near: bool = False
    """Not reached, but within a tenth of it."""
    measured_at: str = ""
    """Date and time, where it was measured in another run than the rest of the report."""

    @property
    def verdict(self) -> str:
        return "not measured" if self.reached is None else "yes" if self.reached else "near" if self.near else "no"


def failed(letter: str, error: BaseException) -> Row:
    """The row of a measurement that broke off."""
    return Row(letter, "broke off", "", "failed", None, note=f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class Report:
    rows: Sequence[Row]
    machine: Mapping[str, str]
    began: str
    """Date and time."""
    seconds: float
    rounds: int
    quick: bool
    complete: bool = True
    """False: it was interrupted."""

    def write(self, directory: Path) -> None:
        """report.md and report.json; each replaces its forerunner at once."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in (("report.md", self.markdown()), ("report.json", self.json())):
            draft = directory / f"{name}.new"
            draft.write_text(text, "utf-8")
            draft.replace(directory / name)

    def json(self) -> str:
        rows = [
            {
                "letter": row.letter, "title": row.title, "target": row.target, "measured": row.measured, "reached": row.reached,
                "verdict": row.verdict, "note": row.note, "measured_at": row.measured_at,
                "plots": [{"name": plot.name, "title": plot.title} for plot in row.plots], "runs": [dict(line) for line in row.details],
            }
            for row in self.rows
        ]
        head = {"began": self.began, "seconds": round(self.seconds, 1), "rounds": self.rounds, "quick": self.quick, "complete": self.complete}
        return json.dumps(_plain({**head, "machine": dict(self.machine), "rows": rows}), indent=1, ensure_ascii=False, default=str) + "\n"

    def markdown(self) -> str:
        lines = ["# Wakeful measured", "", self._preface(), "", *headline(self.rows)]
        lines += ["", "## The machine", "", *table([{"": name, " ": text} for name, text in self.machine.items()])]
        for row in self.rows:
            lines += ["", f"## {row.letter}: {row.title}", ""]
            lines += [f"Target: {row.target}. Measured: {row.measured}. Reached: {row.verdict}.", ""] if row.target else []
            lines += [f"This row was measured in a run of its own, begun {row.measured_at}.", ""] if row.measured_at else []
            lines += [_escape(row.note), ""] if row.note else []
            for plot in row.plots:
                lines += [f"![{plot.title}]({picture(row, plot)}.svg)", ""]
            for part in _alike(row.details):
                lines += [*table(part), ""]
        return "\n".join(lines).rstrip() + "\n"

    def _preface(self) -> str:
        kind = "A short run" if self.quick else "A run"
        broken = "" if self.complete else " **It was interrupted: rows are missing.**"
        return (
            f"{kind} of {self.seconds / 60:.0f} minutes, begun {self.began}; medians of {self.rounds} rounds, lowest and highest in brackets. "
            "Ratios are of values that were measured one right after the other. "
            f"**Absolute figures are those of this machine** (below), on which the load generator runs too.{broken}"
        )


def earlier(directory: Path) -> Report | None:
    """The report that lies there, without the points of its pictures, which lie there too."""
    try:
        report = json.loads((directory / "report.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    rows = [
        Row(
            row["letter"], row["title"], row["target"], row["measured"], row["reached"], row["runs"], row["note"],
            tuple(Plot(plot["name"], plot["title"], {}) for plot in row["plots"]), row["verdict"] == "near", row["measured_at"],
        )
        for row in report["rows"]
    ]
    return Report(rows, report["machine"], report["began"], report["seconds"], report["rounds"], report["quick"], report["complete"])


def headline(rows: Iterable[Row]) -> list[str]:
    return table([
        {"": row.letter, "measured as": row.title, "must reach": row.target, "measured": row.measured, "reached": row.verdict} for row in rows
    ])


def picture(row: Row, plot: Plot) -> str:
    """Name of the plot's files, without the suffix."""
    return f"{row.letter.lower()}-{plot.name}"


def table(lines: Sequence[Mapping[str, object]]) -> list[str]:
    """A Markdown table; columns in the order in which they first appear."""
    if not lines:
        return []
    columns = list(dict.fromkeys(key for line in lines for key in line))
    numbers = {key for key in columns if all(isinstance(line.get(key, 0), int | float) or line.get(key) == "" for line in lines)}
    head = ["| " + " | ".join(map(_cell, columns)) + " |", "|" + "|".join("--:" if key in numbers else "---" for key in columns) + "|"]
    return head + ["| " + " | ".join(_cell(line.get(key, "")) for key in columns) + " |" for line in lines]


def _alike(lines: Sequence[Mapping[str, object]]) -> list[list[Mapping[str, object]]]:
    """Lines with the same keys together, in order of their first."""
    groups: dict[tuple[str, ...], list[Mapping[str, object]]] = {}
    for line in lines:
        groups.setdefault(tuple(line), []).append(line)
    return list(groups.values())


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value)
    return _escape(str(value)).replace("|", "\\|").replace("\n", " ")


def _number(value: float) -> str:
    """With four figures at least, and none after the point that say nothing."""
    if not math.isfinite(value):
        return "-"
    digits = SIGNIFICANT - 1 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _escape(text: str) -> str:
    """Text of a log must not become markup."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def _plain(value: object) -> object:
    """JSON has no nan and no infinity."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
