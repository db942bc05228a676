"""Many times more than a daemon can do, for as long as one likes: how it behaves meanwhile, and how soon it is itself again."""

from array import array
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests import onnx_models
from tests.crowd import calm
from tests.daemon import Daemon, wait_until
from tests.overload.witness import Seen, watching
from wakeful.clock import monotonic
from wakeful.loadgen.arrivals import poisson
from wakeful.loadgen.calls import Call, infer_call
from wakeful.loadgen.driver import closed, open_loop
from wakeful.loadgen.results import Results
from wakeful.tensors import Tensor

DEADLINE = 0.5
"""Seconds that a request may take."""
CALLERS = 16
"""Of the closed loop that measures capacity."""
RECOVERY = 1.0
"""Seconds after the end of the load from which on throughput has to be what it was."""

_CONFIGURATION = """
[defaults]
idle_timeout_secs = 0
prepare = "off"
replicas = 1
pinned = true
request_timeout_ms = {deadline_ms:g}

[[models]]
id = "slow"
path = "slow.onnx"
max_batch_size = 8

[[models]]
id = "ident"
path = "ident.onnx"
"""


def write_models(directory: Path) -> Path:
    """Returns the configuration. `slow` is far slower than the daemon and whoever loads it, and `ident` far faster."""
    onnx_models.slow(directory / "slow.onnx", 2000)
    onnx_models.ident(directory / "ident.onnx")
    config = directory / "models.toml"
    config.write_text(_CONFIGURATION.format(deadline_ms=1000 * DEADLINE))
    return config


@dataclass(frozen=True)
class Outcome:
    """What became of one load."""

    factor: float
    capacity: float
    """Answers a second of a closed loop, just before."""
    results: Results
    seen: Seen
    before: int
    """Private bytes of the daemon."""
    after: Results
    """A closed loop, counted from RECOVERY after the last arrival."""
    left_over: list[str]
    """Gauges that are not what they were before."""

    @property
    def statuses(self) -> Counter[int]:
        return Counter(self.results.status)

    def seconds(self, status: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """Latencies of the answers with this status, shortest first."""
        return np.sort(np.array(self.results.seconds)[np.array(self.results.status) == status])


class Scene:
    """A daemon with `write_models`' configuration, and what it can do."""

    def __init__(self, daemon: Daemon, model: str, connections: int) -> None:
        self.daemon, self.model, self.connections = daemon, model, connections
        wait_until(lambda: daemon.metric("wakeful_replicas", model=model, state="ready") == 1, f"{model} is loaded")
        assert daemon.infer(model, "x", [1, 2, 3, 4], [1, 4])[0] == 200
        daemon.wait_event("probe", model)
        self._calls = [self._call(number) for number in range(16)]

    def _call(self, number: int) -> Call:
        data = np.array([number, 1, 2, 3], np.float32).tobytes()
        return infer_call(f"{self.daemon.host}:{self.daemon.port}", self.model, [Tensor("x", "FP32", (1, 4), data)])

    def _closed(self, seconds: float, warmup: float) -> Results:
        return closed((self.daemon.host, self.daemon.port), self._calls, connections=CALLERS, seconds=seconds, warmup=warmup)

    def capacity(self, seconds: float) -> float:
        """Answers a second, while nobody asks for more than there is."""
        return self._closed(seconds, seconds / 2).throughput()

    def overload(self, factor: float, capacity: float, seconds: float, after: float = 2.0) -> Outcome:
        daemon, model = self.daemon, self.model
        before = self._gauges()
        arrivals: array[float] = poisson(factor * capacity, seconds)
        with watching(daemon, model) as seen:
            began = monotonic()
            address = daemon.host, daemon.port
            results = open_loop(address, self._calls, arrivals, connections=self.connections, timeout=60 * DEADLINE)
            ended = began + arrivals[-1]
        recovered = self._closed(after, max(ended + RECOVERY - monotonic(), 0.0))
        wait_until(lambda: calm(daemon, model), "nothing waits any more")
        with suppress(AssertionError):  # what is left over then is told
            wait_until(lambda: self._gauges() == before, "gauges are what they were")
        now = self._gauges()
        left = [f"{name}: {before[name]:g} before, {now[name]:g} after" for name in before if now[name] != before[name]]
        return Outcome(factor, capacity, results, seen, seen.memory[0], recovered, left)

    def _gauges(self) -> dict[str, float]:
        page: str = self.daemon.call("GET", "/metrics")[1].decode()
        return gauges(page)


def gauges(page: str) -> dict[str, float]:
    """Those gauges of a metrics page that count what is under way."""
    wanted = ("wakeful_queue_requests", "wakeful_replicas", "wakeful_oldest_load_seconds", "process_open_fds")
    samples = (line.rsplit(" ", 1) for line in page.splitlines() if line.startswith(wanted))
    return {name: float(value) for name, value in samples}
