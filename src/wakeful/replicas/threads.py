"""How many threads a replica's runs get, so that all replicas together have no more threads than there are cores."""

from collections.abc import Mapping

LONG_RUN = 0.020
"""Seconds with one thread from which a lone run is worth speeding up."""
WORTH_A_POOL = 1.5
"""Gain that makes up for what a pool costs a model that could have copies: each takes more cores, and none can be forked."""
WORTH_IDLE_CORES = 1.1
"""Gain that is enough where the other cores would stay idle."""


def usable_cores(quota: float | None, affinity: int) -> int:
    """Whole cores that this process may really use; `quota` in cores, None: no quota."""
    return max(1, affinity if quota is None else int(min(quota, affinity)))


def threads_for(configured: int, cores: int, live_replicas: int, lone_seconds: Mapping[int, float] | None, single_replica: bool) -> int:
    """Threads of one run.

    `configured` decides if it is not 0. Otherwise one thread is the usual best, and the only count that lets a replica be forked. More
    come where a lone run is long and either the model may have only one replica or the gain was measured. `lone_seconds` is what a lone run
    took by number of threads; `live_replicas` includes the one that is asked for.
    """
    if configured > 0:
        return configured
    share = cores // max(live_replicas, 1)
    if share < 2 or not lone_seconds or lone_seconds.get(1, 0.0) < LONG_RUN:
        return 1
    one = lone_seconds[1]
    measured = {threads: seconds for threads, seconds in lone_seconds.items() if 1 < threads <= share and seconds > 0}
    if not measured:
        return share if single_replica else 1
    best = min(measured, key=lambda threads: (measured[threads], threads))
    needed = WORTH_IDLE_CORES if single_replica else WORTH_A_POOL
    return best if one / measured[best] >= needed else 1
