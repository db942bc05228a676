"""Refused at the door: what would only wait in vain costs nobody anything else."""

from wakeful.batching.batcher import Batcher
from wakeful.config.settings import ModelSettings
from wakeful.errors import Overloaded
from wakeful.inference import InferRequest


def admit(request: InferRequest, settings: ModelSettings, batcher: Batcher) -> None:
    """Raise Overloaded when the queue is full, or when the request cannot be answered in time as far as run times are known."""
    limits = settings.admission
    request.deadline = min(request.deadline, request.arrived + limits.request_timeout)
    waiting = batcher.waiting
    target = settings.batching.target_p99
    if waiting <= batcher.limits.max_rows and target is None and waiting < limits.queue_limit:
        return
    if waiting >= limits.queue_limit:
        raise Overloaded(
            f"model {settings.id} has {waiting} requests waiting, its queue_limit", retry_after=batcher.expected_wait() / 2, unstarted=True
        )
    needed = batcher.expected_wait() + batcher.costs.estimate(min(request.rows, batcher.row_limit))
    if request.arrived + needed > request.deadline:
        raise Overloaded(
            f"model {settings.id} would need {needed:.3f} s for this request, more than its deadline leaves", retry_after=needed, unstarted=True
        )
    if target is not None and needed > target:
        raise Overloaded(
            f"model {settings.id} would need {needed:.3f} s for this request, over target_p99_ms ({target * 1000:g})",
            retry_after=needed, unstarted=True,
        )
