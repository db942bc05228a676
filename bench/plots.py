"""Pictures of the report, as PNG and SVG. matplotlib is in the extra `bench`; without it the report has none."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.report import Plot, Row, picture

OURS = "#2563a8"
COLOURS = (OURS, "#d9822b", "#3a9a68", "#b0413e", "#7a5aa6", "#6b7280", "#c2a126", "#2a9db5")
THEIRS = "#9aa5b1"
WIDTH, HEIGHT = 8.0, 4.4
"""Inches."""
LINE = 96
"""Letters that have room below the bars; labels are broken into so many lines as they need."""
MANY = 12
"""From so many labels on they stand upright, and bars have no figures."""


def draw(rows: Sequence[Row], directory: Path) -> str:
    """Draw all plots. What stands against it; empty if nothing."""
    wanted = [(row, plot) for row in rows for plot in row.plots if plot.series]
    if not wanted:
        return ""
    try:
        import matplotlib as mpl
    except ImportError:
        return "no pictures: matplotlib is not installed (pip install 'wakeful[bench]')"
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    directory.mkdir(parents=True, exist_ok=True)
    style: Any = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none", "svg.hashsalt": "wakeful"}
    with mpl.rc_context(style):
        for row, plot in wanted:
            figure, axes = plt.subplots(figsize=(WIDTH, HEIGHT), layout="constrained")
            (_bars if plot.kind == "bars" else _lines)(axes, plot)
            axes.set_title(plot.title, loc="left", fontweight="bold")
            axes.set_title("absolute figures: this machine's", loc="right", fontsize=7, color="#6b7280")
            for suffix in ("png", "svg"):
                figure.savefig(directory / f"{picture(row, plot)}.{suffix}", dpi=144, metadata={"Date": None} if suffix == "svg" else None)
            plt.close(figure)
    return ""


def _bars(axes: Any, plot: Plot) -> None:
    labels = [str(x) for x, _ in next(iter(plot.series.values()))]
    crowded = len(labels) >= MANY
    thick, alone = 0.8 / len(plot.series), len(plot.series) == 1 and "Wakeful" in labels
    for number, (name, points) in enumerate(plot.series.items()):
        places = [at - 0.4 + thick * (number + 0.5) for at in range(len(points))]
        colours = [OURS if alone and label == "Wakeful" else THEIRS if alone else COLOURS[number % len(COLOURS)] for label in labels]
        bars = axes.bar(places, [y for _, y in points], thick * 0.94, label=name, color=colours)
        if not crowded:
            axes.bar_label(bars, [_short(y) for _, y in points], padding=2, fontsize=8)
    if crowded:
        axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
    else:
        axes.set_xticks(range(len(labels)), [textwrap.fill(label, LINE // len(labels)) for label in labels])
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(plot.y)
    axes.set_xlabel(plot.x)
    if plot.log_y:
        axes.set_yscale("log")
    axes.margins(y=0.12)
    if len(plot.series) > 1:
        axes.legend(frameon=False, ncols=len(plot.series), loc="upper left", bbox_to_anchor=(0.0, 1.0))
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (3 if plot.log_y else 1.15))


def _lines(axes: Any, plot: Plot) -> None:
    for number, (name, points) in enumerate(plot.series.items()):
        axes.plot(
            [x for x, _ in points], [y for _, y in points], label=name, color=COLOURS[number % len(COLOURS)], linewidth=1.8,
            marker="o" if len(points) < 30 else None, markersize=4,
        )
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    if len(plot.series) > 1:
        axes.legend(frameon=False)


def _short(value: float) -> str:
    """Three figures: "27.1k", "5.12", "0.034"."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if suffix == 'k' else size):.3g}{suffix}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
