"""Requests that wait for a model to wake: who waits, until when, and what becomes of them when the controller says how far the model is.

Pure: events and the time in, effects out. A held request's body stays where it is, mostly in the caller; `Room` counts those that had to be read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from wakeful.cluster.wire import WakeTold
from wakeful.errors import NotFound, Overloaded, Unavailable, WakefulError

MOST_REQUESTS = 1000
MOST_BYTES = 256 << 20
UNHEARD = 10.0
"""Seconds that a request is held without a word of the controller."""
ASK_AGAIN = 0.5
"""Seconds between asking a controller that does not answer."""
LATER = 5.0
"""Seconds after which a caller may try again where nothing better is known."""

# ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Ask(NamedTuple):
    """Tell the controller that requests wait for this model, in `after` seconds."""

    model: str
    after: float = 0.0


class Leave(NamedTuple):
    """Nobody waits for it any more. The wake goes on: it is the controller's."""

    model: str


class Send(NamedTuple):
    """The model is routed."""

    ticket: int


class Refuse(NamedTuple):
    ticket: int
    error: WakefulError


Effect = Ask | Leave | Send | Refuse


@dataclass(slots=True)
class _Waiting:
    """For one model."""

    arrived: dict[int, float] = field(default_factory=dict)
    """By ticket, oldest first."""
    hold: float | None = None
    """Seconds; None: the controller has said nothing yet."""
    trouble: str = ""
    """Why it has not."""
    reason: str = ""
    """Why the model has no place, as the controller said last."""

    @property
    def patience(self) -> float:
        return UNHEARD if self.hold is None else self.hold


class Held:
    def __init__(self, most: int = MOST_REQUESTS) -> None:
        self._most = most
        self._waiting: dict[str, _Waiting] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def arrive(self, ticket: int, model: str, now: float) -> list[Effect]:
        if self._count >= self._most:
            return [Refuse(ticket, Overloaded(f"{self._most} requests wait for models to wake, and the gateway holds no more", retry_after=LATER))]
        first = model not in self._waiting
        waiting = self._waiting.setdefault(model, _Waiting())
        waiting.arrived[ticket] = now
        self._count += 1
        asks: list[Effect] = [Ask(model)] if first else []
        return asks + self.tick(now)

    def leave(self, ticket: int, model: str) -> list[Effect]:
        """Its caller has gone, or it was settled."""
        waiting = self._waiting.get(model)
        if waiting is None or waiting.arrived.pop(ticket, None) is None:
            return []
        self._count -= 1
        return self._sweep(model)

    def told(self, model: str, told: WakeTold, now: float) -> list[Effect]:
        """The controller has answered."""
        waiting = self._waiting.get(model)
        if waiting is None:
            return []
        if told.state == "waking":
            waiting.hold, waiting.reason = told.hold, told.message
            return self.tick(now)
        self._count -= len(waiting.arrived)
        del self._waiting[model]
        if told.state == "routed":
            return [Send(ticket) for ticket in waiting.arrived]
        return [Refuse(ticket, refusal(model, told)) for ticket in waiting.arrived]

    def broken(self, model: str, why: str) -> list[Effect]:
        """The controller cannot be asked, or has gone in the middle: it, or the next leader, is asked again."""
        waiting = self._waiting.get(model)
        if waiting is None:
            return []
        waiting.trouble = why
        return [Ask(model, ASK_AGAIN)]

    def tick(self, now: float) -> list[Effect]:
        """Refuse whoever has waited long enough."""
        effects: list[Effect] = []
        for model, waiting in list(self._waiting.items()):
            late = [ticket for ticket, arrived in waiting.arrived.items() if now - arrived >= waiting.patience]
            for ticket in late:
                del waiting.arrived[ticket]
            self._count -= len(late)
            effects += [Refuse(ticket, _late(model, waiting)) for ticket in late]
            effects += self._sweep(model)
        return effects

    def next_deadline(self) -> float | None:
        """When `tick` has something to do."""
        return min(self._deadlines(), default=None)

    def _deadlines(self) -> Iterator[float]:
        return (next(iter(waiting.arrived.values())) + waiting.patience for waiting in self._waiting.values() if waiting.arrived)

    def _sweep(self, model: str) -> list[Effect]:
        if self._waiting[model].arrived:
            return []
        del self._waiting[model]
        return [Leave(model)]


def refusal(model: str, told: WakeTold) -> WakefulError:
    """What an answer that is final means for a caller."""
    if told.state == "unknown":
        near = f"; did you mean {', '.join(told.near)}?" if told.near else ""
        return NotFound((told.message or f"no model is called {model!r}") + near)
    if told.state == "off":
        return Unavailable(told.message or f"model {model} is switched off: it has 0 replicas and no bounds", retry_after=LATER)
    return Unavailable(told.message or f"model {model} cannot be loaded", retry_after=LATER)


def _late(model: str, waiting: _Waiting) -> WakefulError:
    if waiting.hold is None:
        because = f": {waiting.trouble}" if waiting.trouble else ""
        return Unavailable(f"model {model} is routed nowhere, and the controller does not say why{because}", retry_after=LATER)
    because = f". {waiting.reason}" if waiting.reason else ""
    return Unavailable(f"model {model} is waking, and has not woken within {waiting.hold:g} s; it goes on{because}", retry_after=LATER)


class Room:
    """Bytes that bodies may take which were read to find out for whom they are."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most, self._taken = most, 0

    @property
    def taken(self) -> int:
        return self._taken

    def take(self, size: int) -> None:
        if self._taken + size > self._most:
            raise Overloaded(
                f"bodies that had to be read for their model's name fill the {self._most >> 20} MiB that the gateway has for them; "
                "what is named in the path or in the header wakeful-model needs none of it", retry_after=LATER,
            )
        self._taken += size

    def give(self, size: int) -> None:
        self._taken -= size
