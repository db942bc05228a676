"""The planner's own figures. Those of a model's scaling are `thresholds`."""

from dataclasses import dataclass, field

from wakeful.cluster.planning.servers import ServerLimits


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, if nothing else is said."""

    settle: float = 30.0
    """After a change of leader, how long agents are waited for before anything is placed or unloaded."""
    gateway_silence: float = 10.0
    """After a change of leader nothing is unloaded before: a gateway may be there that has not connected yet, with the routes of before."""
    progress: float = 300.0
    """A load that takes longer has failed."""
    retry_first: float = 5.0
    retry_longest: float = 300.0
    """Pauses between failed loads double from the first to the longest."""
    short_retry: float = 30.0
    """Between two tries to place what had no room."""
    judge: float = 5.0
    """Between two looks at a count that the scheduler decides."""
    look: float = 60.0
    """Longest time between two looks at a model, whatever happens."""
    seekers: int = 100
    """Models without a place, or with fewer than they should have, that are looked at as soon as room is gained; others after them."""
    drain_loads: int = 8
    """Loads at once on one replica that takes what others leave behind."""
    drain_stall: float = 30.0
    """A replica that has had a load for longer is not given more of them, if others can."""
    falters: float = 30.0
    """A replica that has had a load for longer, or where several have failed within it, is given new ones only if no other has room."""
    drain_overtime: float = 5.0
    """After its deadline a leaving replica is released, whatever is left there."""
    servers: ServerLimits = field(default_factory=ServerLimits)
