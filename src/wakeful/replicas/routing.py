"""Which of the ready replicas takes a request."""

import random
from collections.abc import Sequence


class Router:
    """One model's routing. `least-queue` breaks ties towards the lowest index, so that under light load the spare replicas fall idle."""

    __slots__ = ("choose", "_next", "_random")

    def __init__(self, strategy: str, seed: int | None = None) -> None:
        self._next = 0
        self._random = random.Random(seed)
        strategies = {"least-queue": self._least_queue, "round-robin": self._round_robin, "random": self._any}
        self.choose = strategies[strategy.replace("_", "-")]
        """Index into `loads`, the (queue length, active requests) of every ready replica; there must be one."""

    def _least_queue(self, loads: Sequence[tuple[int, int]]) -> int:
        return 0 if len(loads) == 1 else loads.index(min(loads))

    def _round_robin(self, loads: Sequence[tuple[int, int]]) -> int:
        chosen = self._next % len(loads)
        self._next = chosen + 1
        return chosen

    def _any(self, loads: Sequence[tuple[int, int]]) -> int:
        return self._random.randrange(len(loads))
