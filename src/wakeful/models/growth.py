"""Measures what `replicas.scaling` judges: does a replica more than there are cores bring throughput?

Below the number of cores a queue alone decides. From there on a further replica is a trial: what the others can do is measured before it starts,
what they can do together is measured once it runs, and if that is not clearly more, it is taken back.
"""

from collections.abc import Sequence
from typing import NamedTuple

from wakeful.clock import monotonic
from wakeful.config.settings import ReplicaSettings
from wakeful.errors import WakefulError
from wakeful.models.backoff import Backoff
from wakeful.replicas import scaling
from wakeful.replicas.scaling import Hold, ScaleLimits, ScaleView, Step

LOOK_SECONDS = 0.02
"""Under overload every arrival asks; the answer is renewed this often."""
GAP_SECONDS = 0.25
"""Time between two looks that counts as time under pressure; longer, and there was a pause."""
BUSY_SECONDS = 0.1
"""Time over which the share of runs is measured, once a first look has given a rough one."""
JUDGE_SECONDS = 1.0
"""Pressure from which throughput is known."""
FORGET_SECONDS = 30.0
"""Pause of the pressure after which everything begins anew."""
FEWEST_RUNS = 8
"""A run of which so many would not fit between two looks is long enough to be what the queue waits for."""
SILENT: frozenset[str] = frozenset({"measuring"})
"""Causes of holding that pass by themselves and are not worth an event."""


class Scene(NamedTuple):
    """A model at one moment."""

    queues: Sequence[int]
    """Waiting requests of every replica, 0 for one that is starting."""
    starting: int
    active: int
    """Requests that are running."""
    rows_done: float
    """Rows run so far."""
    loaded: int
    """Replicas of all models."""
    cores: int | None
    """See ScaleView."""
    runs: int = 0
    """Runs so far."""
    usual_run: float = 0.0
    """Seconds that one takes lately; 0: none has ended yet."""
    core_seconds: float = 0.0
    """That the replicas' processes have computed so far; one core each, whatever their threads."""
    settled: bool = True
    """False while it is about to become faster or slower by itself, as until its requests may be merged: what is measured now will not hold."""


class Growing(NamedTuple):
    more: int
    reason: str
    hold: str | None
    """Why nothing is added, when that is news."""
    back: str | None = None
    """Why the replica that was added last is taken back."""


NOTHING = Growing(0, "", None)


class Trial(NamedTuple):
    """One replica more than there are cores."""

    replicas: int
    """Their number with it."""
    before: float
    """Rows per second without it."""


class Throughput:
    """Rows per second while there is pressure: less work is no sign of less capacity."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._rows = 0.0
        self._core_seconds = 0.0
        self._last: tuple[float, float, float] | None = None

    def observe(self, now: float, scene: Scene) -> None:
        """There is pressure now."""
        if self._last is not None and now - self._last[0] <= GAP_SECONDS:
            self._seconds += now - self._last[0]
            self._rows += scene.rows_done - self._last[1]
            self._core_seconds += scene.core_seconds - self._last[2]
        self._last = (now, scene.rows_done, scene.core_seconds)

    @property
    def rate(self) -> float | None:
        return self._rows / self._seconds if self._seconds >= JUDGE_SECONDS else None

    @property
    def computing(self) -> float:
        """Cores that were computed on meanwhile."""
        return self._core_seconds / self._seconds if self._seconds else 0.0


class Business:
    """Which share of their time replicas run, between two looks under pressure.

    Runs count as long as they usually are: a moment in which the machine stands still makes one run seem to fill the time, and says nothing.
    """

    def __init__(self) -> None:
        self._begin: tuple[float, int] | None = None
        self._share: float | None = None

    def observe(self, now: float, scene: Scene) -> float | None:
        """The latest share; None: there was no pressure until now, or replicas have come or gone."""
        if self._begin is not None and now - self._begin[0] > GAP_SECONDS:
            self._begin = self._share = None
        if self._begin is None:
            self._begin = (now, scene.runs)
            return self._share
        begin, runs = self._begin
        if self._share is None or now - begin >= BUSY_SECONDS:
            time = (now - begin) * max(len(scene.queues), 1)
            short = 0.0 < scene.usual_run < time / FEWEST_RUNS
            self._share = (scene.runs - runs) * scene.usual_run / time if short else 1.0
            self._begin = (now, scene.runs)
        return self._share


class Growth:
    """One model's steps. Asked on arrivals, no more often than `next_look` says."""

    def __init__(self, settings: ReplicaSettings, max_loaded: int | None) -> None:
        self._limits = ScaleLimits(settings.queue_threshold, settings.max_replicas, settings.min_replicas, settings.fixed, max_loaded)
        self.next_look = 0.0
        """Asking before this time is of no use."""
        self.trial: Trial | None = None
        """While there is one, every look counts, not only those under pressure."""
        self._count = 0
        self._throughput = Throughput()
        self._business = Business()
        self._useless: tuple[float, float] | None = None
        self._last_look = 0.0
        self._held = ""
        self._backoff = Backoff()

    def failed(self, error: WakefulError, now: float) -> None:
        """A step could not be carried out: leave the queues alone for a while, longer every time."""
        self.trial = None
        self.next_look = now + self._backoff.failed(error, now)

    def decide(self, scene: Scene) -> Growing:
        now = monotonic()
        self.next_look = now + LOOK_SECONDS
        self._keep_in_mind(now, scene)
        if self._under_pressure(scene):
            self._throughput.observe(now, scene)
        busy = self._business.observe(now, scene)
        rate = self._throughput.rate
        if self.trial is not None:
            return NOTHING if rate is None else self._judge(self.trial, rate)
        computing = self._throughput.computing
        decision = scaling.decide(ScaleView(scene.queues, scene.loaded, scene.cores, rate, self._useless, busy, computing), self._limits)
        if isinstance(decision, Step):
            if rate is not None and scene.cores is not None and len(scene.queues) >= scene.cores and not self._limits.max_replicas:
                self.trial = Trial(len(scene.queues) + decision.count, rate)
            self._held = ""
            return Growing(decision.count, decision.reason, None)
        if isinstance(decision, Hold) and decision.cause != self._held and decision.cause not in SILENT:
            self._held = decision.cause
            return Growing(0, "", decision.reason)
        return NOTHING

    def _keep_in_mind(self, now: float, scene: Scene) -> None:
        """Forget what was measured with another number of replicas, or long ago."""
        count = len(scene.queues)
        if now - self._last_look > FORGET_SECONDS:
            self._useless, self._held = None, ""
        if now - self._last_look > FORGET_SECONDS or count > self._count:
            self._backoff.clear()
        if self.trial is not None and count < self.trial.replicas:  # it has ended by itself
            self.trial = None
        if not scene.settled:
            self._throughput = Throughput()
        if now - self._last_look > FORGET_SECONDS or count != self._count or scene.starting:
            self._throughput, self._business = Throughput(), Business()
        self._last_look, self._count = now, count

    def _under_pressure(self, scene: Scene) -> bool:
        """A trial shortens the queues even where it brings nothing: then the work in hand counts, against what would queue without it."""
        if scene.starting:
            return False
        threshold = self._limits.queue_threshold
        if self.trial is not None:
            return sum(scene.queues) + scene.active > threshold * (self.trial.replicas - 1)
        return min(scene.queues, default=0) > threshold

    def _judge(self, trial: Trial, after: float) -> Growing:
        self.trial = None
        if scaling.gained(trial.before, after):
            return NOTHING
        self._useless, self._held = (trial.before, after), "no_gain"
        text = f"replica {trial.replicas} brought no throughput ({trial.before:.0f} -> {after:.0f} rows/s) and is taken back"
        return Growing(0, "", None, text)
