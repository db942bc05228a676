"""A call as handlers see it, whichever library brought it."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from wakeful.clock import monotonic
from wakeful.config.settings import Role
from wakeful.errors import WakefulError
from wakeful.frontends.grpc.errors import Code, Metadata, render
from wakeful.frontends.wording import Dialect
from wakeful.inference import InferRequest

log = logging.getLogger(__name__)

DEADLINE_SLACK = 0.01
"""Seconds: a call that is given up so shortly before its deadline has not left, its time is up; two clocks tell that."""

Sent = Sequence[tuple[str, str | bytes]]
"""Metadata of a call; values of keys that end in -bin are bytes."""


class Call(ABC):
    """One call of a method, which is answered or fails once. What comes after that, or after its caller has left, is dropped."""

    __slots__ = ("deadline", "gone", "metadata", "method", "on_leaving", "waiter")

    def __init__(self, method: "Method", metadata: Sent, seconds: float | None) -> None:
        """`seconds`: until its deadline; None: it has none."""
        self.method = method
        self.metadata = metadata
        self.deadline = math.inf if seconds is None else monotonic() + seconds
        """Monotonic seconds."""
        self.waiter: InferRequest | None = None
        """Has to know when the caller leaves. It knows its call, so it is forgotten at the end: together they would keep the message in memory until
        the garbage collector comes, which is seldom."""
        self.gone = False
        self.on_leaving: Callable[[], None] | None = None

    @abstractmethod
    def respond(self, message: bytes) -> None:
        """The only answer."""

    @abstractmethod
    def send(self, message: bytes) -> None:
        """One of several answers."""

    @abstractmethod
    def end(self, code: Code, text: str, metadata: Metadata) -> None:
        """No further answer."""

    def fail(self, error: Exception) -> None:
        if not isinstance(error, WakefulError):
            log.error("a call could not be handled", exc_info=error)
        self.end(*render(error, self.method.dialect))
        self.waiter = None

    def leave(self) -> None:
        """The caller does not wait any more. Whose time is up is told so by the engine, and counted so."""
        self.gone = True
        if self.waiter is not None and monotonic() < self.deadline - DEADLINE_SLACK:
            self.waiter.left = True
        self.waiter = None
        if self.on_leaving is not None:
            self.on_leaving()

    def credentials(self) -> Iterator[str]:
        for name, value in self.metadata:
            if name == "authorization" and isinstance(value, str):
                scheme, _, credential = value.partition(" ")
                if scheme.lower() == "bearer":
                    yield credential.strip()
            elif name == "x-api-key" and isinstance(value, str):
                yield value


Handler = Callable[[Call, bytes], None]
Kind = Literal["unary", "answers", "stream"]
"""One message each way; many answers to one message; many both ways."""


class Method(NamedTuple):
    path: str
    role: Role | None
    """What a caller has to be where authentication is on; None: anybody."""
    dialect: Dialect
    handler: Handler
    what: str
    """What it does, for docs/grpc.md."""
    kind: Kind = "unary"


Take = Callable[[Call, bytes], None]
"""Checks a call at the door and hands it to its method's handler."""
