"""What every row gets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Context:
    quick: bool
    """Minutes instead of an hour: fewer rounds, shorter runs, no peers."""
    rounds: int
    """How often everything is measured; medians are reported."""
    cache: Path
    """Survives the run: models, environments of peers, what one run may leave to the next."""
    say: Callable[[str], None]
    """Shows what is going on now."""
    peers: Sequence[str] = ()
    """Names of `bench.peers.PEERS` that are wanted and can be had."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Those that are wanted and cannot be had, with the reason."""
    only: frozenset[str] = frozenset()
    """Letters of the rows that are wanted; empty: all."""
    whole_grid: bool = False
    """Row F: against every fixed setting."""

    def wants(self, letter: str) -> bool:
        """For a module with several rows: is this one worth its time?"""
        return not self.only or letter in self.only

    def seconds(self, full: float, quick: float) -> float:
        return quick if self.quick else full
