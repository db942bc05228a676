"""What the daemon decided, each decision with the figures behind it: the latest ones in memory, every one in the log."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from wakeful import clock
from wakeful.telemetry.logs import Log

Kind = Literal["load", "unload", "scale", "evict", "refuse", "restart", "blame", "probe", "prepare", "config", "stream", "cluster", "ready", "stop"]
Figure = str | int | float | bool | None

REPEATING: frozenset[Kind] = frozenset({"refuse"})
"""Kinds that overload brings by the thousand: of one model at most one a QUIET is kept, and it tells how many came since the one before."""

QUIET = 1.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    """Counts from 1, without gaps."""
    time: float
    """Seconds since 1970."""
    kind: Kind
    model: str
    """Empty for what concerns the whole daemon; `name:version` where versions are numbered."""
    text: str
    """One line for people; holds the figures that matter."""
    figures: dict[str, Figure]
    """The same for programs."""


@dataclass(slots=True)
class _Repetition:
    last: float = float("-inf")
    suppressed: int = 0


@dataclass
class Events:
    """The latest `capacity` events. Everything runs in the event loop; `emit` never blocks."""

    log: Log | None = None
    capacity: int = 1000
    now: Callable[[], float] = clock.wall
    listeners: list[Callable[[Kind, str, str], None]] = field(init=False, default_factory=list)
    """Hear kind, model and text of every event, those that are not kept among them."""
    watchers: list[Callable[[Event], None]] = field(init=False, default_factory=list)
    """Are given every event that is kept."""
    _kept: deque[Event] = field(init=False)
    _seq: int = field(init=False, default=0)
    _repetitions: dict[tuple[Kind, str], _Repetition] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._kept = deque(maxlen=self.capacity)

    def emit(self, kind: Kind, model: str, text: str, **figures: Figure) -> None:
        """Keep the event and print its line, unless it repeats one that has just been kept."""
        time = self.now()
        for listener in self.listeners:
            listener(kind, model, text)
        if kind in REPEATING:
            suppressed = self._suppressed(kind, model, time)
            if suppressed is None:
                return
            if suppressed:
                text += f"  ({suppressed} more before)"
                figures["suppressed"] = suppressed
        self._seq += 1
        event = Event(self._seq, time, kind, model, text, figures)
        self._kept.append(event)
        if self.log is not None:
            self.log.write(kind, model, text, figures)
        for watcher in self.watchers:
            watcher(event)

    @property
    def seq(self) -> int:
        """Number of the newest event; 0: none has happened."""
        return self._seq

    def kept(self) -> Iterator[Event]:
        """All that are still here, oldest first."""
        return iter(self._kept)

    def list(self, since: int = 0, limit: int = 1000, model: str | None = None, kind: Kind | None = None) -> tuple[Event, ...]:
        """The newest `limit` events after number `since`, oldest first; of a model, those of all its versions."""
        chosen: deque[Event] = deque(maxlen=limit)
        for event in self._kept:
            if event.seq > since and model in (None, event.model, event.model.partition(":")[0]) and kind in (None, event.kind):
                chosen.append(event)
        return tuple(chosen)

    def _suppressed(self, kind: Kind, model: str, time: float) -> int | None:
        """How many were suppressed since the last one that was kept; None: suppress this one too."""
        repetition = self._repetitions.setdefault((kind, model), _Repetition())
        if abs(time - repetition.last) < QUIET:  # abs: the wall clock may be set back
            repetition.suppressed += 1
            return None
        suppressed, repetition.suppressed, repetition.last = repetition.suppressed, 0, time
        return suppressed
