"""What a run has measured, one entry a call."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from wakeful.loadgen.calls import Call


@dataclass(frozen=True)
class Results:
    """Columns of equal length, an entry for each call that was due (open loop) or sent (closed loop).

    In a closed loop, calls that were answered during the warm-up are left out; `start` is below 0 for those that were sent in it and answered
    later. A closed loop also waits for what was under way at its end: such an answer counts for latencies and errors, but not for rates.
    """

    start: "array[float]"
    """When it was due (closed loop: sent), in seconds from the beginning of what is measured."""
    seconds: "array[float]"
    """From `start` to the last byte of the answer; nan: there was none."""
    status: "array[int]"
    """The HTTP status; 0: no answer, `errors` says why."""
    call: "array[int]"
    """Index into the calls."""
    wall: float
    """Seconds that were measured. Open loop: until the last answer."""
    cpu: float
    """CPU seconds of the generator itself meanwhile."""
    lag: float
    """How late calls were sent because the generator was late, not the server: the 99th percentile, in seconds. 0 for a closed loop."""
    errors: dict[int, str] = field(default_factory=dict)
    """The first text of each status that is not 2xx."""
    interrupted: bool = False
    under_way: int = 0
    """Calls that had no answer yet when the run was interrupted; they are in no column."""
    oldest: float = 0.0
    """Seconds for which the oldest of these had waited."""

    def __len__(self) -> int:
        return len(self.start)

    def ok(self) -> int:
        """Calls that were answered with 2xx."""
        return int(self._good().sum())

    def throughput(self) -> float:
        """2xx answers a second."""
        return self._rate(self._in_time())

    def rows_per_second(self, calls: Sequence[Call]) -> float:
        """Rows of 2xx answers, a second."""
        rows = np.array([call.rows for call in calls])
        return float(rows[_view(self.call)[self._in_time()]].sum()) / self.wall if self.wall > 0 else 0.0

    def percentile(self, q: float) -> float:
        """Seconds that `q` percent (50, 99, 99.9) of the 2xx answers took at most; nan without any."""
        if 0 < q < 1:
            raise ValueError(f"percent are wanted: {100 * q:g}, not {q:g}")
        good = self.latencies()
        return float(np.percentile(good, q, method="inverted_cdf")) if len(good) else float("nan")

    def latencies(self) -> "npt.NDArray[np.float64]":
        """Seconds of the 2xx answers."""
        return _view(self.seconds)[self._good()]

    def within(self, seconds: float) -> float:
        """Goodput: 2xx answers a second that took at most so long."""
        return self._rate(self._in_time() & (_view(self.seconds) <= seconds))

    def busy(self) -> float:
        """Share of the time in which the generator used a core. Near 1 it was the limit, not the server."""
        return self.cpu / self.wall if self.wall > 0 else 0.0

    def warmed(self, seconds: float) -> "Results":
        """Without what started before. CPU is taken as spread evenly."""
        return self._part(_view(self.start) >= seconds, seconds)

    def of(self, calls: Sequence[Call], label: str) -> "Results":
        """What concerns the calls of one label."""
        return self._part(np.array([call.label == label for call in calls], bool)[_view(self.call)], 0.0)

    def _part(self, keep: "npt.NDArray[np.bool_]", begin: float) -> "Results":
        wall = max(self.wall - begin, 0.0)
        return replace(
            self,
            start=array("d", (_view(self.start)[keep] - begin).tobytes()),
            seconds=array("d", _view(self.seconds)[keep].tobytes()),
            status=array("h", _view(self.status)[keep].tobytes()),
            call=array("l", _view(self.call)[keep].tobytes()),
            wall=wall,
            cpu=self.cpu * wall / self.wall if self.wall > 0 else 0.0,
        )

    def _good(self) -> "npt.NDArray[np.bool_]":
        status = _view(self.status)
        return (status >= 200) & (status < 300)

    def _in_time(self) -> "npt.NDArray[np.bool_]":
        return self._good() & (_view(self.start) + _view(self.seconds) <= self.wall + 1e-9)

    def _rate(self, chosen: "npt.NDArray[np.bool_]") -> float:
        return float(chosen.sum()) / self.wall if self.wall > 0 else 0.0


def _view(column: "array[float] | array[int]") -> "npt.NDArray[np.float64]":
    return np.frombuffer(column, column.typecode) if column else np.empty(0, column.typecode)
