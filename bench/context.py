"""What every row gets."""

from collections.abc import Callable, Sequence
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
    """Names of `bench.peers.PEERS` that are wanted."""
    shared: dict[str, object] = field(default_factory=dict)
    """What a row found out and a later one needs as well."""

    def seconds(self, full: float, quick: float) -> float:
        return quick if self.quick else full
