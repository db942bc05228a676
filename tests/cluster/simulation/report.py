"""What a simulation measured, and what it is asked for."""

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median


@dataclass(slots=True)
class Report:
    """What was measured."""

    seconds: int
    models: int
    steps: list[tuple[float, str, int]] = field(default_factory=list)
    """Every change of a count: when, whose, to what."""
    server_steps: list[tuple[float, int]] = field(default_factory=list)
    ups: int = 0
    downs: int = 0
    wakes: int = 0
    sleeps: int = 0
    reversals: int = 0
    """Steps of one model in opposite directions within 300 s, waking from zero aside."""
    overloaded: float = 0.0
    """Model-seconds with more than half a second of work waiting, of models whose count is the scheduler's."""
    cramped: float = 0.0
    """Of these, those of models for whose replicas there was no room, or whose replica was lost: no rule could have helped."""
    unserved: float = 0.0
    """Model-seconds in which requests came for a model that has to be there, and no copy was."""
    copies: float = 0.0
    """Mean number of copies that serve."""
    lost_replanned: list[int] = field(default_factory=list)
    """Copies lost with a replica, planned elsewhere or told short in the same pass."""
    refused: int = 0
    """Targets that could not be written and were not followed."""
    leaders: int = 0
    writes: int = 0
    busiest: int = 0
    """Most status writes in one second."""
    crowded: int = 0
    """Most of them of one model."""
    oldest: float = 0.0
    """Longest that a status waited while nothing was refused, in seconds."""
    plans: list[float] = field(default_factory=list)
    """Wall seconds of each pass of the planner."""
    wall: float = 0.0

    @property
    def overloaded_share(self) -> float:
        return (self.overloaded - self.cramped) / (self.seconds * self.models)

    @property
    def server_reversals(self) -> int:
        """Steps of the Server down and up again, or up and down again, within 300 s."""
        steps = list(pairwise(self.server_steps))
        return sum((b - a) * (c - b) < 0 and later - at < 300 for ((_, a), (at, b)), ((_, _), (later, c)) in pairwise(steps))

    @property
    def reversals_rate(self) -> float:
        """Per 1,000 models in two hours."""
        return self.reversals / self.models * 1000 / self.seconds * 7200

    def faults(self) -> list[str]:
        """Which of the figures that are asked for are missed."""
        wanted = {
            f"reversals within 300 s: {self.reversals_rate:.1f} per 1,000 models in 2 h, not over 20": self.reversals_rate <= 20,
            f"steps of the Server back within 300 s: {self.server_reversals}, none": not self.server_reversals,
            f"overloaded model-seconds: {self.overloaded_share:.4%}, not over 0.05 %": self.overloaded_share <= 0.0005,
            f"model-seconds without a copy that has to be there: {self.unserved:.0f}, none": not self.unserved,
            f"status writes in one second: {self.busiest}, not over 50": self.busiest <= 50,
            f"status writes of one model in one second: {self.crowded}, one": self.crowded <= 1,
        }
        return [text for text, held in wanted.items() if not held]

    def text(self) -> str:
        passes = sorted(self.plans) or [0.0]
        return (
            f"steps up {self.ups}, down {self.downs}, to zero {self.sleeps}, woken {self.wakes}; reversals within 300 s {self.reversals}"
            f" ({self.reversals_rate:.1f} per 1,000 models in 2 h); copies {self.copies:.0f}\n"
            f"overloaded {self.overloaded:.0f} model-seconds, {self.cramped:.0f} of them without room: {self.overloaded_share:.4%} by the rules;"
            f" unserved {self.unserved:.0f}\n"
            f"replicas lost with {self.lost_replanned} copies, all planned in one pass; leaders {self.leaders}; targets refused {self.refused}\n"
            f"server steps {[count for _, count in self.server_steps]}, reversals {self.server_reversals}\n"
            f"status writes {self.writes} ({self.writes / self.seconds:.2f}/s), at most {self.busiest} in a second and {self.crowded} of one model,"
            f" oldest {self.oldest:.1f} s\n"
            f"passes {len(passes)}: median {median(passes) * 1e3:.2f} ms, 99 % {passes[len(passes) * 99 // 100] * 1e3:.1f} ms,"
            f" longest {passes[-1] * 1e3:.0f} ms; {self.wall:.0f} s wall for {self.seconds / 3600:.1f} h"
        )
