"""Time that passes only when a test says so."""


class Clock:
    """What is given where a module asks for the time. `tick`: seconds that pass with each look."""

    def __init__(self, time: float = 1000.0, tick: float = 0.0) -> None:
        self.time = time
        self._tick = tick

    def __call__(self) -> float:
        self.time += self._tick
        return self.time
