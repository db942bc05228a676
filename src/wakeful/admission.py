"""Refused at the door: what would only wait in vain costs nobody anything else."""

from wakeful.batching.batcher import Batcher
from wakeful.config.settings import ModelSettings
from wakeful.errors import Overloaded
from wakeful.inference import InferRequest

LONE_RUNS = 64
"""Who can wait for so many runs of one row, and finds no more waiting, is not weighed: asking costs time on every request."""


def admit(request: InferRequest, settings: ModelSettings, batcher: Batcher) -> None:
    """Raise Overloaded when the queue is full, or when the request cannot be answered in time as far as run times are known.

    Nobody is refused for the sake of those who have left.
    """
    latest = request.arrived + settings.admission.request_timeout
    if request.deadline > latest:
        request.deadline = latest
    try:
        _weigh(request, settings, batcher)
    except Overloaded:
        if not batcher.forget_left():
            raise
        _weigh(request, settings, batcher)


def _weigh(request: InferRequest, settings: ModelSettings, batcher: Batcher) -> None:
    limits, target = settings.admission, settings.batching.target_p99
    waiting = batcher.waiting
    if waiting >= limits.queue_limit:
        raise Overloaded(
            f"model {settings.id} has {waiting} requests waiting, its queue_limit", retry_after=batcher.prospect(1).wait / 2, unstarted=True
        )
    left = request.deadline - request.arrived
    costs = batcher.costs
    if target is None and waiting <= LONE_RUNS and (costs.fixed + costs.per_row) * LONE_RUNS < left:
        return
    if not waiting and not batcher.busy:  # what is known may be wrong or old, and without a run nobody would ever see
        return
    wait, needed = batcher.prospect(request.rows)
    careful = needed + wait * (1.0 / batcher.punctuality.share - 1.0)  # so much longer have such waits become
    if careful > left:
        raise Overloaded(
            f"model {settings.id} would need {careful:.3f} s for this request, and its deadline leaves {left:.3f} s",
            retry_after=needed, unstarted=True,
        )
    if target is not None and needed > target * batcher.allowance.share:
        raise Overloaded(
            f"model {settings.id} would need {needed:.3f} s for this request, over target_p99_ms ({target * 1000:g})",
            retry_after=needed, unstarted=True,
        )
