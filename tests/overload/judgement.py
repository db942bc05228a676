"""What was promised for an overload, against what came of it."""

from typing import NamedTuple

from tests.overload.load import DEADLINE, Outcome

ALIVE = 0.1
"""Seconds."""
AT_ONCE = 0.1
"""Seconds for 99.9 % of all refusals."""
ROOM = 64 << 20
"""Bytes by which the daemon may grow."""
CREEP = 8 << 20
"""Bytes by which the second half of a load may need more than the first."""
FULL = 0.85
"""Share of the capacity that counts as all of it: two measurements of the same machine differ by as much."""
UNPUNCTUAL = 0.02
"""Seconds that an answer may be late by, because the generator sent its request late."""


class Verdict(NamedTuple):
    promise: str
    found: str
    kept: bool


def verdicts(outcome: Outcome) -> list[Verdict]:
    """The strict figures, for a machine that does nothing else."""
    seen, statuses, results = outcome.seen, outcome.statuses, outcome.results
    answered, refused = outcome.seconds(200), outcome.seconds(429)
    alive, late = max(seen.kept + seen.fresh), int((answered > DEADLINE + UNPUNCTUAL).sum())
    half = len(seen.memory) // 2
    peaks = max(seen.memory[: half + 1]), max(seen.memory[half:])
    told = [reply for reply in seen.replies if reply.status == 429]
    unlike = [reply for reply in seen.replies if not reply.right or (reply.status == 429 and reply.retry_after is None)]
    p999 = float(refused[int(len(refused) * 0.999)]) if len(refused) else 0.0
    worth = results.throughput() / outcome.capacity
    back = outcome.after.throughput() / outcome.capacity
    return [
        Verdict(
            "offered", f"{len(results) / results.wall:.0f}/s of {outcome.factor * outcome.capacity:.0f}/s, capacity {outcome.capacity:.0f}/s, "
            f"generator busy {results.busy():.0%}, late {_ms(results.lag)}", True,
        ),
        Verdict(
            "everything is answered, 200 or 429", ", ".join(f"{status}: {n}" for status, n in sorted(statuses.items())),
            not set(statuses) - {200, 429},
        ),
        Verdict("work goes on", f"{results.throughput():.0f}/s answered, {worth:.0%} of capacity", worth >= FULL),
        Verdict("answered within the deadline", f"longest {_ms(answered[-1])} of {_ms(DEADLINE)}, {late} late", not late),
        Verdict("refused at once", f"p99.9 {_ms(p999)}, longest {_ms(refused[-1] if len(refused) else 0.0)}", p999 <= AT_ONCE),
        Verdict("429 with Retry-After", f"{len(told)} seen by a plain caller, {len(unlike)} wrong", not unlike),
        Verdict(
            f"alive within {_ms(ALIVE)}", f"longest {_ms(max(seen.kept))} of {len(seen.kept)}, over new connections {_ms(max(seen.fresh))} of "
            f"{len(seen.fresh)}; the prober overslept by up to {_ms(max(seen.overslept))}", alive <= ALIVE and not seen.broken,
        ),
        Verdict(
            "memory is bounded", f"{outcome.before / 2**20:.1f} MiB before, {peaks[0] / 2**20:.1f} at most in the first half, "
            f"{peaks[1] / 2**20:.1f} in the second", peaks[1] <= min(outcome.before + ROOM, peaks[0] + CREEP),
        ),
        Verdict(
            "full throughput a second later", f"{outcome.after.throughput():.0f}/s, {back:.0%} of capacity, "
            f"{len(outcome.after) - outcome.after.ok()} refused", back >= FULL and outcome.after.ok() == len(outcome.after),
        ),
        Verdict("gauges are back", "; ".join(outcome.left_over) or "all", not outcome.left_over),
    ]


def table(title: str, judged: list[Verdict]) -> str:
    lines = [f"| {title} | | |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {one.promise} | {one.found} | {'kept' if one.kept else '**broken**'} |" for one in judged)])


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
