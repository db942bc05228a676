"""What the agent and the process that fetches say to each other, one JSON object a line."""

import msgspec


class Order(msgspec.Struct, frozen=True):
    """By stdin, not by the command line or the environment: others may read those."""

    uri: str
    directory: str
    """Of the cache."""
    limit: int | None
    """Bytes of all artifacts in the cache; None: what the file system has."""
    claims: str
    """Where persistent volume claims are mounted, each in a directory of its name."""
    revision: str = ""
    """The files must have this one; empty: any."""
    secret: dict[str, str] = {}


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    fetched: int
    """Bytes so far."""
    total: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    revision: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    reason: str


Word = Progress | Done | Failed
