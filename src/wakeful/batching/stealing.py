"""Work stealing: an idle replica takes over what waits for a busy sibling."""

from collections.abc import Sequence

from wakeful.batching import policy
from wakeful.batching.costs import GroupCosts
from wakeful.batching.lane import Lane


def _waiting(lane: Lane) -> int:
    return lane.queue.size


def take_over(lane: Lane, lanes: Sequence[Lane], limits: policy.Limits, costs: GroupCosts) -> tuple[int, float] | None:
    """Rows and age of what is next in an idle lane, once it has what it should have of the others' work: anything rather than nothing, and more
    as long as the fixed part of a run is what it saves."""
    head = lane.queue.head()
    while head is None or policy.worth_merging(head[0], costs.of(lane.queue.next_group)):
        longest = max(lanes, key=_waiting)
        if longest is lane or not longest.running or not longest.queue.size:
            break
        limit = policy.row_limit(limits, costs.all) - (head[0] if head else 0)
        stolen = longest.queue.steal(limit) if limit > 0 else []
        for request in stolen:
            lane.queue.push(request)
        if not stolen or head is not None:
            return lane.queue.head()
        head = lane.queue.head()
    return head
