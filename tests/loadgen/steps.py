"""Steps of a sweep as they might have come out."""

from collections.abc import Sequence

from wakeful.loadgen.summary import Bin, Facts
from wakeful.loadgen.sweep import Own, Step, Window


def step(
    rate: float, done: float, p50: float, p99: float, *, failed: int = 0, windows: Sequence[tuple[float, float]] = ((1.0, 0.01),) * 3,
    busy: float = 0.2, own: Own | None = None, interrupted: bool = False,
) -> Step:
    """Of two seconds. Seconds for p50 and p99; 99.9 is a quarter above 99."""
    known = {50: p50, 90: (p50 + p99) / 2, 95: (p50 + 2 * p99) / 3, 99: p99, 99.9: 1.25 * p99, 100: 1.5 * p99}
    facts = Facts(done, done, round(2 * rate), failed, lambda percent: known[percent], (p50 + p99) / 2)
    shown = tuple(Window(answered, median) for answered, median in windows)
    bins = (Bin(p50, round(done)), Bin(p99, round(done))) if done else ()
    return Step(rate, rate, facts, shown, bins, busy, interrupted, own)


SWEEP = [
    step(250, 250, 0.0039, 0.0062, own=Own(1.1, 0.0002, 0.0036, 96 << 20)),
    step(500, 499, 0.004, 0.0071, own=Own(1.8, 0.0004, 0.0035, 96 << 20)),
    step(1000, 998, 0.0044, 0.012, windows=((1.0, 0.0044), (0.98, 0.0043), (1.01, 0.0045)), own=Own(6.8, 0.0011, 0.0031, 208 << 20)),
    step(2000, 1311, 0.088, 0.24, failed=1360, windows=((0.7, 0.01), (0.6, 0.09), (0.6, 0.2)), own=Own(16.0, 0.081, 0.0064, 208 << 20)),
    step(1400, 1302, 0.04, 0.11, windows=((0.95, 0.01), (0.93, 0.04), (0.91, 0.07)), own=Own(15.2, 0.04, 0.0061, 208 << 20)),
]
