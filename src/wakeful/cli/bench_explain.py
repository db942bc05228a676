"""`wakeful bench --explain`: how each figure is computed, for whoever compares it with another tool's."""

import textwrap
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any, Final

from wakeful.loadgen import sweep
from wakeful.loadgen.summary import BUSY

WIDTH, INDENT = 80, 13
RUN: Final = f"""\
latency: open loop (--rate, --bursts, --trace, --sweep): from the moment at which a call was due, not from when it was sent, to the last byte
  of its answer. A stall of the server is in the latency of every call that was due meanwhile. Closed loop (otherwise): from sending a call to
  the last byte of its answer; a connection that waits sends nothing, which hides stalls.
p50 ... max: of the 2xx answers: the smallest latency that so many percent did not exceed, without interpolation.
requests/s: 2xx answers by the seconds measured: of a closed loop until its end, of an open loop until its last answer.
rows/s: the same, each answer counted with the size of axis 0 of its first input.
failed: calls without a 2xx answer: refused, wrong, cut off, or later than --timeout.
warm-up: --warmup seconds before it, of which no call counts. Before that, one call of each kind, unless --cold.
generator: CPU seconds of wakeful bench by the seconds measured; over {BUSY:.0%} of a core it was the limit itself. Late: how long after its
  moment a call was sent though a connection was free, 99th percentile. Moments are those of a Poisson process, kept by a timer of the kernel,
  and the same again for the same --seed.
"""
SWEEP: Final = f"""\
warm-up: one call after the other in windows of 0.3 s, until the medians of two agree within {sweep.STEADY:.0%}. The first rate is a round one
  near {sweep.IDLE:g} / median, unless --rate gives it.
step: an open loop of --warmup seconds that do not count, then of --duration seconds that do; longer where fewer than {sweep.LEAST_CALLS} calls
  would be due.
done/s: 2xx answers that came within the step, by its seconds, also of calls that were due before it.
refused: share of the calls due in the step that got no 2xx answer.
kept up: done/s is at least {sweep.KEPT:.0%} of the calls due a second (give or take {sweep.FEW:g} calls), at most {sweep.MOST_FAILED:.0%} fail,
  and the median of the last third is at most {sweep.GROWING:g} times that of the first plus {1000 * sweep.GRACE:g} ms: no queue grows.
search: the rate is doubled until one is not kept up, then the geometric middle of the highest that was and the lowest that was not is tried,
  until these are within {sweep.CLOSE - 1:.0%}. A rate that was just missed is tried once more, and the second time counts.
knee: the highest rate that was kept up below all that were not. --assert holds its figures against the bounds.
stable: how far the thirds of the knee's step are from their mean, at most, in their median and in answers to calls due; up to
  {sweep.STEADY:.0%} is stable.
rows: of a run, on average. This and the next three are what a Wakeful says itself, and are left out for other servers.
queue, run: seconds in the queue, and of a run, on average from before the step to after it.
memory: that its models hold after the step.
"""
END: Final = "The knee is where this machine ends, with the generator on it. One run is no figure: measure again."


class Explain(Action):
    """Like --help: needs nothing else on the command line."""

    def __init__(self, option_strings: list[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None) -> None:
        print(explanation(), end="")
        parser.exit()


def explanation() -> str:
    lines = ["How wakeful bench computes its figures", "", *_entries(RUN), "", "A sweep (--sweep)", *_entries(SWEEP), ""]
    return "\n".join([*lines, *textwrap.wrap(END, WIDTH), ""])


def _entries(block: str) -> Iterator[str]:
    """Each text behind its label, on as many lines as it needs."""
    for entry in block.replace("\n  ", " ").splitlines():
        label, _, text = entry.partition(": ")
        first, others = f"{label:<{INDENT}}", " " * INDENT
        yield from textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False)
