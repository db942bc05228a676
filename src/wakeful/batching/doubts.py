"""Runs that nobody waits for any more: a replica may finish one, but not for ever."""

import asyncio
from collections.abc import Callable

from wakeful.batching import policy
from wakeful.batching.costs import GroupCosts
from wakeful.batching.lane import Lane
from wakeful.clock import monotonic


class Doubts:
    def __init__(self, costs: GroupCosts, stuck: Callable[[Lane, float], None]) -> None:
        """`stuck` is told of a lane whose run has lasted far too long, and for how many seconds."""
        self._costs = costs
        self._stuck = stuck

    def look_at(self, lane: Lane) -> None:
        """Watch what this lane runs, if nobody waits for it and it is not watched yet."""
        if lane.running and lane.running[0][0] != lane.doubted and lane.running[0][1].forsaken:
            lane.doubted = lane.running[0][0]
            self._doubt(lane, lane.doubted)

    def _doubt(self, lane: Lane, run: int) -> None:
        if not lane.running or lane.running[0][0] != run:
            return
        seconds = monotonic() - lane.since
        batch = lane.running[0][1]
        left = policy.longest_run(batch.rows, self._costs.of(batch.requests[0].group)) - seconds
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._doubt, lane, run)
        else:
            self._stuck(lane, seconds)
