"""How long clients are waited for."""

from dataclasses import dataclass

LOOKING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds."""

    idle: float = 75.0
    """From one request to the next."""
    receiving: float = 60.0
    """For a request to arrive whole."""
    reading: float = 60.0
    """For a client to take any byte of its answer."""
    leaving: float = 5.0
    """For a client that is refused in the middle of its request to see why."""
    parting: float = 0.1
    """For a request that is on its way while the server stops, on a connection that is kept."""
    probing: float = 0.1
    """Before a client that sends no more is first asked whether it is still there."""
    looking: float = LOOKING_SECONDS
    """From one look at all connections to the next; the first three may become this much longer."""

    @classmethod
    def of(cls, idle: float, client: float) -> "Patience":
        """As two settings say. Where they are short, connections are looked at more often."""
        return cls(idle=idle, receiving=client, reading=client, looking=min(LOOKING_SECONDS, idle / 4, client / 4))


class Watch:
    """Notices that nothing has moved on a connection, by looking at it now and then: a timer for each would cost every request."""

    __slots__ = ("seen", "_since")

    def __init__(self) -> None:
        self.seen: object = None
        """What the latest look found; None after an answer, with which all waiting begins anew."""
        self._since = 0.0

    def stuck(self, state: object, limit: float, now: float) -> bool:
        """Have all looks for `limit` seconds found this same state?"""
        if state != self.seen:
            self.seen, self._since = state, now
            return False
        return now - self._since >= limit
