"""A picture of a run as PNG; `svg.py` needs no library: latency by percentile, and throughput and latency over time."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from wakeful.loadgen.results import Results
from wakeful.loadgen.summary import over_time
from wakeful.loadgen.sweep import Step, knee
from wakeful.telemetry.units import show_seconds

BLUE, RED, GREY = "#2563a8", "#c0392b", "#888888"
TICKS = (50, 90, 99, 99.9, 99.99)


def run(results: Results, title: str, path: Path) -> None:
    """Write a PNG. Raises OSError."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    figure.suptitle(title)
    _percentiles(left, results)
    _time(right, results)
    figure.savefig(path, dpi=150)


def sweep(steps: Sequence[Step], title: str, path: Path) -> None:
    """Latency against throughput, as a PNG. Raises OSError."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots()
    figure.suptitle(title)
    shown = sorted((step for step in steps if step.facts.done > 0 and step.facts.percentile(50) > 0), key=lambda step: step.rate)
    done = [step.facts.done for step in shown]
    for percent, colour in ((50, BLUE), (99, RED)):
        axes.plot(done, [step.facts.percentile(percent) for step in shown], color=colour, label=f"p{percent}", marker="o")
    if (best := knee(steps)) is not None:
        axes.axvline(best.facts.done, color=GREY, linestyle="--")
    if shown:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel("answers/s")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show_seconds(value)))
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def _percentiles(axes: "mpl.axes.Axes", results: Results) -> None:
    seconds = np.sort(results.latencies())
    axes.set_title("latency by percentile", fontsize=10)
    axes.set_ylabel("latency")
    if not len(seconds):
        return
    above = 1 - np.arange(len(seconds)) / len(seconds)  # share that took at least so long
    axes.step(1 / above, seconds, color=BLUE)
    shown = [tick for tick in TICKS if 100 / (100 - tick) <= len(seconds)] or [TICKS[0]]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.set_xticks([100 / (100 - tick) for tick in shown], [f"{tick:g} %" for tick in shown])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show_seconds(value)))
    axes.grid(alpha=0.3)


def _time(axes: "mpl.axes.Axes", results: Results) -> None:
    slices = over_time(results)
    axes.set_title("over time", fontsize=10)
    axes.set_xlabel("seconds")
    axes.set_ylabel("answers/s", color=BLUE)
    times = [one.begin + one.seconds / 2 for one in slices]
    axes.plot(times, [one.answers / one.seconds for one in slices], color=BLUE)
    if any(one.failures for one in slices):
        axes.plot(times, [one.failures / one.seconds for one in slices], color=GREY, linestyle="--", label="failures/s")
        axes.legend(loc="lower right", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    other = axes.twinx()
    other.plot(times, [one.p99 for one in slices], color=RED, linewidth=1)
    other.set_ylabel("p99", color=RED)
    other.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show_seconds(value)))
    other.set_ylim(bottom=0)
