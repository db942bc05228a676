"""Who goes with the next run, and who is told that it is too late. A pure function of the queue, the time and what was learnt of run times."""

from wakeful.batching import policy
from wakeful.batching.costs import CostModel
from wakeful.batching.queue import BatchQueue
from wakeful.errors import Overloaded, TimedOut, WakefulError
from wakeful.inference import FOREVER, InferRequest

Dropped = list[tuple[InferRequest, WakefulError | None]]
"""Requests with the reason; None where the caller has left, or its time is up."""


def board(
    queue: BatchQueue, now: float, begins: float, max_rows: int, limits: policy.Limits, costs: CostModel
) -> tuple[list[InferRequest], Dropped]:
    """Take the members of a run that begins at `begins` out of the queue: so many that the first of them is in time, and none that cannot be."""
    first = queue.first()
    if first is None:
        return [], []
    deadline, since = policy.too_late(begins, max_rows, limits, costs)
    if queue.rows <= max_rows:
        since = -FOREVER  # nobody behind them is served sooner without them
    requests, dropped = queue.take(policy.fitting(max_rows, first.deadline - begins, costs), deadline, since)
    if not requests:  # the estimate may be wrong, and only a run can show that
        last = next((i for i in range(len(dropped) - 1, -1, -1) if not dropped[i].left and dropped[i].deadline > now), None)
        requests = [] if last is None else [dropped.pop(last)]
    return requests, [(request, _why(request, now, deadline, costs)) for request in dropped]


def _why(request: InferRequest, now: float, deadline: float, costs: CostModel) -> WakefulError | None:
    if request.left or request.deadline <= now:
        return None
    if request.deadline <= deadline:
        return TimedOut(f"its deadline leaves {request.deadline - now:.3f} s, and no run ends so soon", unstarted=True)
    return Overloaded("it would be answered later than target_p99_ms", retry_after=costs.estimate(1), unstarted=True)
