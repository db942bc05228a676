"""What a model prints: whole lines into the daemon's log, under the model's name, and no more than somebody could read.

The pipe to the daemon is shared by all replicas of a nursery. A model that prints without end must neither fill the log nor hold the others up.
"""

import faulthandler
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from time import monotonic

LINES_PER_SECOND = 50.0
"""Of one that prints without end: these, and silence for the rest of the second."""
BURST = 1000
"""Lines that may come at once, such as a long traceback or a summary of layers."""
LONGEST = 2000
"""Bytes of a line; with the name before it, it is written in one piece (PIPE_BUF), so that replicas do not cut into each other's."""


class Lines(io.RawIOBase):
    """A binary stream that writes each line to descriptor `fd` with `name` before it, if there is room, and counts what it leaves out."""

    def __init__(self, name: str, fd: int = 2) -> None:
        self._name = name.encode()[:200]
        self._fd = fd
        self._rest = b""
        self._allowance, self._seen = float(BURST), monotonic()
        self._silent = False
        self._left_out = 0
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: bytes, /) -> int:  # type: ignore[override]  # any buffer, which typeshed names by a private protocol
        *lines, rest = (self._rest + bytes(data)).split(b"\n")
        for line in lines:
            self._tell(line)
        self._rest = rest[-LONGEST:]
        return len(data)

    def _tell(self, line: bytes) -> None:
        now = monotonic()
        self._allowance = min(float(BURST), self._allowance + (now - self._seen) * LINES_PER_SECOND)
        self._seen = now
        self._silent = self._allowance < (LINES_PER_SECOND if self._silent else 1)
        if self._silent or not self._room.poll(0):
            self._left_out += 1
            return
        self._allowance -= 1
        missed = b"(%d lines were left out)\n%b: " % (self._left_out, self._name) if self._left_out else b""
        self._left_out = 0
        with suppress(OSError):  # the model has closed it
            os.write(self._fd, b"%b: %b%b\n" % (self._name, missed, line[:LONGEST]))


@contextmanager
def hushed() -> Iterator[None]:
    """What a model prints in this block, about requests that nobody has sent, is nobody's."""
    with open(os.devnull, "w", encoding="utf-8") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        yield


def capture(name: str) -> None:
    """Let this process's stdout and stderr be such streams, each, and a crash name its line of Python."""
    faulthandler.enable(2)
    for stream in ("stdout", "stderr"):
        setattr(sys, stream, io.TextIOWrapper(Lines(name), "utf-8", "backslashreplace", line_buffering=True, write_through=True))
