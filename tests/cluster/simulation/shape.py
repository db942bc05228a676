"""What is simulated, and when it begins."""

from dataclasses import dataclass

from wakeful.cluster.planning.world import Bounds, ModelSpec

START = 1_000_000
"""When it begins: long after all that is there has changed last."""
BROKEN = "broken"
"""The model that never loads."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the models every tenth of the rarer half has a fixed count, and the last twentieth is used now and then, down to zero. One never loads."""

    models: int = 1000
    replicas: int = 50
    hours: float = 24.0
    seed: int = 1
    scheduled: bool = False
    """The scheduler decides the Server's count, from a fifth of `replicas` on and up to them; else an HPA does."""
    eager: bool = False
    """Look at every model in each period, and not only at those that the rules could move: slower, and the same."""

    @property
    def seconds(self) -> int:
        return int(self.hours * 3600)

    @property
    def server_bounds(self) -> Bounds:
        return Bounds(max(self.replicas // 5, 1), 1, self.replicas) if self.scheduled else Bounds(self.replicas)

    def specs(self) -> dict[str, ModelSpec]:
        fixed = [index for index in range(self.models // 2 + 1, self.models - self.models // 20) if index % 10 == 0]
        specs = {}
        for index in range(self.models):
            name, bounds = f"m{index}", Bounds(1, 1, self.replicas)
            if index >= self.models - self.models // 20:
                bounds = Bounds(None, 0, self.replicas)
            elif index == fixed[0]:
                name = BROKEN
            elif index in fixed:
                bounds = Bounds(2)
            specs[name] = ModelSpec(name, f"s3://models/{name}", "r1", requirements=frozenset({"onnx"}), bounds=bounds)
        return specs
