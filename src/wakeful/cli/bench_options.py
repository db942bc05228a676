"""The options of `wakeful bench`, and the load that they ask for."""

import math
import os
import re
from argparse import ArgumentTypeError, Namespace
from array import array
from pathlib import Path
from typing import NamedTuple

from wakeful.cli.bench_asserts import bound
from wakeful.cli.bench_explain import Explain
from wakeful.cli.client import DEFAULT_URL, URL_VARIABLE
from wakeful.cli.output import seconds_of
from wakeful.cli.parser import WRONG_USE, Parser
from wakeful.loadgen import arrivals
from wakeful.telemetry.units import counted

DURATION = 10.0
WARMUP = 1.0
CALLERS = 16
"""Connections of a closed loop."""
MOST_CONNECTIONS = 256
"""Of an open loop, which opens them as it needs them."""
MOST_CALLS = 20_000_000
"""Of an open loop: each has its place in memory."""
STEP, SETTLING = 2.0, 0.5
"""Seconds of a step of a sweep that are measured, and before them."""
ADDRESS = re.compile(r"|.*://.*|(localhost|\d[\d.]*\.\d+|\[.*\])(:\d+)?(/.*)?|[\w.-]+:\d{3,5}(/.*)?")
"""What is taken as a server's and not as a model's name."""
EPILOG = """\
Without URL, --url or WAKEFUL_URL names the server, else it is http://127.0.0.1:8080; a key is taken from WAKEFUL_API_KEY.
Without --rate, --bursts or --trace the loop is closed: each connection sends its next call when it has its answer. That shows what a server can
do, and hides its stalls. The other three are open loops: calls are sent when they are due, and latency counts from then.
"""


class WrongUse(Exception):
    """The command line cannot be carried out. `status` is the program's exit status, `code` that of the errors in JSON."""

    def __init__(self, message: str, *notes: tuple[str, str], status: int = WRONG_USE, code: str = "invalid_input") -> None:
        super().__init__(message)
        self.message = message
        self.notes = notes
        self.status, self.code = status, code


class Load(NamedTuple):
    """What is to be done to the server."""

    text: str
    connections: int
    warmup: float
    seconds: float
    arrivals: "array[float] | None"
    """None: a closed loop."""


class Sweep(NamedTuple):
    """Rates that are tried one after the other."""

    text: str
    connections: int
    settling: float
    seconds: float
    first: float | None
    """Calls a second; None: as the warm-up suggests."""


def add_arguments(parser: Parser) -> None:
    parser.usage = f"{parser.prog} [URL] MODEL[=WEIGHT] ... [option ...]"
    parser.epilog = EPILOG
    what = "a name, after a server's URL if need be; with several, MODEL=3 is called three times as often"
    parser.add_argument("models", nargs="+", metavar="MODEL", help=what)
    parser.add_argument("--url", metavar="URL", help="the server, for example http://127.0.0.1:8080")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="holds the key to show")
    load = parser.add_argument_group("load")
    load.add_argument("--connections", type=_count, metavar="N", help=f"a closed loop of N callers (default {CALLERS}); open: most of them (256)")
    load.add_argument("--rate", type=_positive, metavar="R", help="an open loop of R calls a second, at random moments (Poisson)")
    load.add_argument("--bursts", type=bursts, metavar="LOW,HIGH,P,D", help="an open loop: HIGH calls/s in the share D of every P seconds, else LOW")
    load.add_argument("--sweep", action="store_true", help="open loops of rising rates (from --rate, if given), up to the knee and around it")
    load.add_argument("--trace", type=Path, metavar="FILE", help="an open loop: calls at the moments of a file, in seconds, one a line")
    times = f"measured time (default {DURATION:g}; a trace: all; a step of a sweep: {STEP:g})"
    load.add_argument("--duration", "--for", type=seconds_of, metavar="SECONDS", help=times)
    before = f"load before it (default {WARMUP:g}; a trace: 0; a step: {SETTLING:g})"
    load.add_argument("--warmup", type=_not_negative, metavar="SECONDS", help=before)
    load.add_argument("--timeout", type=_positive, default=30.0, metavar="SECONDS", help="for one call (default 30)")
    load.add_argument("--cold", action="store_true", help="no call of each kind beforehand: the first ones may find a sleeping model")
    load.add_argument("--seed", type=_seed, default=1, metavar="N", help="of moments, order and values (default 1)")
    body = parser.add_argument_group("requests")
    body.add_argument("--rows", type=counts, metavar="N,N", help="sizes of axis 0 where it is free, mixed evenly (default 1)")
    body.add_argument("--dim", action="append", type=_dim, default=[], dest="dims", metavar="AXIS=N", help="size of a free dimension (default 1)")
    body.add_argument("--shape", action="append", type=_shape, default=[], dest="shapes", metavar="INPUT=N,N", help="whole shape of an input")
    body.add_argument("--int-range", type=int_range, default=(0, 1), metavar="LOW:HIGH", help="values of integer inputs (default 0:1)")
    body.add_argument("--binary", action="store_true", help="tensors as binary data instead of JSON, both ways")
    body.add_argument("--request", type=Path, metavar="FILE", help="this body, as it is")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--assert", action="append", type=bound, default=[], dest="bounds", metavar="BOUND",
        help="exit 1 unless p99<20ms, mean<5ms, max<1s, done>900, rows>5000 (a second), failed<=0.1%%; repeatable",
    )
    output.add_argument("--explain", action=Explain, help="how each figure is computed, and no load")
    output.add_argument("--json", nargs="?", const="-", metavar="FILE", help="all figures, for programs: into a file, or on stdout")
    output.add_argument("--plot", type=Path, metavar="FILE", help="a picture, .svg, .html, or .png (needs matplotlib)")
    output.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="(default auto: on a terminal)")
    output.add_argument("-q", "--quiet", action="store_true", help="errors and the result only")


def place_of(arguments: Namespace) -> tuple[str, list[tuple[str, float]]]:
    """The server's address, and the models with their weights. Raises WrongUse."""
    url, names = arguments.url, list(arguments.models)
    if url is None and (len(names) > 1 or "://" in names[0]) and ADDRESS.fullmatch(names[0]):
        url = names.pop(0)
    if not names:
        raise WrongUse("which model?", ("hint", f"wakeful bench {url} MODEL"))
    if arguments.json and "://" in arguments.json:
        raise WrongUse(f"--json takes {arguments.json} for the name of a file", ("hint", "put --json last, or write --json=-"))
    try:
        return url if url is not None else os.environ.get(URL_VARIABLE) or DEFAULT_URL, [weighted(name) for name in names]
    except ArgumentTypeError as error:
        raise WrongUse(f"argument MODEL: {error}") from None


def load_of(arguments: Namespace) -> Load | Sweep:
    """Check what belongs together. Raises WrongUse, InvalidInput or OSError."""
    chosen = [name for name in ("rate", "bursts", "trace") if getattr(arguments, name) is not None]
    if len(chosen) > 1:
        raise WrongUse(f"--{chosen[0]} and --{chosen[1]} are two different loads", ("hint", "give one of them"))
    if arguments.request and (arguments.binary or arguments.rows or arguments.dims or arguments.shapes):
        raise WrongUse("--request is the whole body: --binary, --rows, --dim and --shape do not go with it")
    kind = chosen[0] if chosen else ""
    if arguments.sweep:
        if kind in ("bursts", "trace"):
            raise WrongUse(f"--sweep and --{kind} are two different loads", ("hint", "give one of them"))
        seconds, settling = arguments.duration or STEP, SETTLING if arguments.warmup is None else arguments.warmup
        return Sweep(f"sweep, {seconds:g} s a step", arguments.connections or MOST_CONNECTIONS, settling, seconds, arguments.rate)
    warmup = arguments.warmup if arguments.warmup is not None else 0.0 if kind == "trace" else WARMUP
    seconds = arguments.duration or DURATION
    if not kind:
        connections = arguments.connections or CALLERS
        return Load(f"{counted(connections, 'connection')} for {seconds:g} s", connections, warmup, seconds, None)
    connections, seed = arguments.connections or MOST_CONNECTIONS, arguments.seed
    if (arguments.rate or max((arguments.bursts or (0.0,))[:2])) * (warmup + seconds) > MOST_CALLS:
        raise WrongUse(f"more than {MOST_CALLS:,} calls", ("hint", "a lower rate, or a shorter --duration"))
    if kind == "rate":
        due = arrivals.poisson(arguments.rate, warmup + seconds, seed)
        text = f"{arguments.rate:g} calls/s for {seconds:g} s"
    elif kind == "bursts":
        low, high, period, duty = arguments.bursts
        due = arrivals.bursts(low, high, period, duty, warmup + seconds, seed)
        text = f"{low:g} calls/s with bursts of {high:g}, for {seconds:g} s"
    else:
        due = arrivals.read_trace(arguments.trace)
        if arguments.duration:
            due = array("d", (moment for moment in due if moment < warmup + seconds))
        text = f"{len(due):,} calls of {arguments.trace}"
    if not due or due[-1] < warmup:
        raise WrongUse(f"{text}: no call is due", ("hint", "a higher rate, or a longer --duration"))
    return Load(text, connections, warmup, seconds, due)


# ── values of options ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def weighted(text: str) -> tuple[str, float]:
    """ "fraud", "fraud=3"."""
    name, _, weight = text.rpartition("=") if "=" in text else (text, "", "1")
    return name, _positive(weight)


def counts(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))


def bursts(text: str) -> tuple[float, float, float, float]:
    try:
        low, high, period, duty = (float(part) for part in text.split(","))
    except ValueError:
        low = math.nan
    if not (low >= 0 and high > 0 and 0 < period < math.inf and 0 < duty <= 1):
        raise ArgumentTypeError(f"{text!r}: expected calls/s, calls/s, seconds and a share, as in 10,500,2,0.1")
    return low, high, period, duty


def int_range(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    try:
        bounds = int(low), int(high)
    except ValueError:
        bounds = 1, 0
    if bounds[0] > bounds[1]:
        raise ArgumentTypeError(f"{text!r}: expected two whole numbers, the smaller first, as in 0:9")
    return bounds


def _dim(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name:
        raise ArgumentTypeError(f"{text!r}: expected an axis and its size, as in 1=128")
    return name, _count(size)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition("=")
    if not name:
        raise ArgumentTypeError(f"{text!r}: expected an input and its shape, as in x=1,16")
    return name, counts(sizes)


def _count(text: str) -> int:
    if not text.strip().isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _seed(text: str) -> int:
    if not text.strip().isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _positive(text: str) -> float:
    value = _not_negative(text)
    if not value:
        raise ArgumentTypeError(f"{text!r} is not a number over 0")
    return value


def _not_negative(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return value
