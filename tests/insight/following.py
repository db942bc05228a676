"""A client of server-sent events."""

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.daemon import Daemon


class Frame(NamedTuple):
    kind: str
    seq: int
    data: Any


class Following:
    """One open stream. Reading ends with a failed test after 30 s without a byte."""

    def __init__(self, daemon: Daemon, query: str = "", context: ssl.SSLContext | None = None, headers: dict[str, str] | None = None) -> None:
        self._connection = (
            http.client.HTTPConnection(daemon.host, daemon.port, timeout=30) if context is None
            else http.client.HTTPSConnection(daemon.host, daemon.port, timeout=30, context=context)
        )
        self._connection.request("GET", f"/wakeful/v1/stream{query}", headers=headers or {})
        self.answer = self._connection.getresponse()
        self.comments = 0

    def __iter__(self) -> Iterator[Frame]:
        """Until the server ends it."""
        fields: dict[str, str] = {}
        while line := self.answer.readline():
            text = line.decode().rstrip("\n")
            if text.startswith(":"):
                self.comments += 1
            elif text:
                name, _, value = text.partition(": ")
                fields[name] = value
            elif "event" in fields:
                yield Frame(fields["event"], int(fields["id"]), json.loads(fields["data"]))
                fields = {}

    def until(self, condition: Callable[[Frame], Any]) -> list[Frame]:
        """All frames up to the first that is wanted."""
        frames = []
        for frame in self:
            frames.append(frame)
            if condition(frame):
                return frames
        raise AssertionError(f"the stream ended with {frames[-1:]}")

    def close(self) -> None:
        self.answer.close()
        self._connection.close()
