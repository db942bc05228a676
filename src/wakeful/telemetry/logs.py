"""Log lines that never hold anybody up.

Whoever reads stderr may stop reading: a paused terminal, a stuck collector. Then a write blocks, and with it the event loop and every request.
So lines go through a bounded queue to a thread that alone writes. (Setting O_NONBLOCK instead would change the descriptor for every process
that shares it, the user's shell among them.) What does not fit is dropped and counted; once the reader is back, a line says how many it missed.
"""

import json
import logging
import math
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Literal

from wakeful import clock

LINE_LIMIT = 8 * 1024
"""Characters of one text; the rest is cut. A library's message may hold a whole graph."""

CHUNK = 64 * 1024
"""Bytes of one write, about."""

_ASCII = str.maketrans({"→": "->", "←": "<-", "×": "x", "≤": "<=", "≥": ">=", "–": "-", "—": "-", "…": "...", "·": "-", "’": "'"})
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {0x09: " ", 0x0A: "\n    "}
"""A caller's text must not look like a line of ours, nor steer a terminal: control characters are shown, further lines are indented."""

Format = Literal["text", "json"]


class Log:
    """A log on the descriptor `fd`, which stays open. `write` may be called from any thread, signal handlers included, and never blocks."""

    def __init__(
        self,
        fd: int = 2,
        format: Format = "text",
        *,
        encoding: str | None = None,
        capacity: int = 2048,
        now: Callable[[], float] = clock.wall,
    ) -> None:
        self._fd = fd
        self._now = now
        self._capacity = capacity
        self._encoding = encoding or getattr(sys.stderr, "encoding", None) or "utf-8"
        self._unicode = self._encoding.lower().replace("-", "").startswith("utf")
        self._format = _json_line if format == "json" else _text_line
        self._queue: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()
        self._closed = False
        self._refused = 0  # counted by the callers
        self._unwritten = 0  # counted by the writer
        self._reported = 0
        self._writer = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._writer.start()

    @property
    def dropped(self) -> int:
        """Lines lost, ever."""
        return self._refused + self._unwritten

    def write(self, kind: str, subject: str, text: str, figures: Mapping[str, object] | None = None) -> None:
        """Queue a line. `kind` is an event's kind or a level's name, `subject` a model or a logger; `figures` appear in JSON lines only."""
        if self._closed or self._queue.qsize() >= self._capacity:
            self._refused += 1
        else:
            self._queue.put(self._line(kind, subject, text, figures or {}))

    def flush(self, timeout: float = 1.0) -> bool:
        """Wait until all lines queued so far are written; False when `timeout` seconds did not suffice."""
        done = threading.Event()
        self._queue.put(done)
        return done.wait(timeout)

    def close(self, timeout: float = 1.0) -> bool:
        """Write what is queued and end the writer; False when the reader did not take it in `timeout` seconds, and then it is lost."""
        self._closed = True
        self._queue.put(None)
        self._writer.join(timeout)
        return not self._writer.is_alive()

    def _line(self, kind: str, subject: str, text: str, figures: Mapping[str, object]) -> bytes:
        if len(text) > LINE_LIMIT:
            text = text[:LINE_LIMIT] + "…"
        line = self._format(self._now(), kind, subject, text, figures)
        if not self._unicode:
            line = line.translate(_ASCII)
        return line.encode(self._encoding, "backslashreplace") + b"\n"

    # ── the writer's thread ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _write_all(self) -> None:
        while True:
            lines, stop = self._next_lines()
            if lines:
                self._write(lines)
            if isinstance(stop, threading.Event):
                stop.set()
            elif stop:
                return

    def _next_lines(self) -> tuple[list[bytes], threading.Event | bool]:
        """Wait for a line and take those behind it up to a chunk; the second value is what ended the taking: a flush, the end, or nothing."""
        lines: list[bytes] = []
        size = 0
        item = self._queue.get()
        while True:
            if item is None:
                return lines, True
            if isinstance(item, threading.Event):
                return lines, item
            lines.append(item)
            size += len(item)
            if size >= CHUNK:
                return lines, False
            try:
                item = self._queue.get_nowait()
            except Empty:
                return lines, False

    def _write(self, lines: list[bytes]) -> None:
        count = len(lines)
        if lost := self.dropped - self._reported:
            self._reported += lost
            lines.append(self._line("warning", "log", f"{lost} lines dropped: nobody read them", {"dropped": lost}))
        if not self._write_bytes(memoryview(b"".join(lines))):
            self._unwritten += count

    def _write_bytes(self, data: memoryview) -> bool:
        """Blocks as long as the reader lets it. False when the descriptor takes nothing any more."""
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # another process has set O_NONBLOCK on what it shares with us
                select.select([], [self._fd], [])
            except OSError:
                return False
        return True


def _text_line(now: float, kind: str, subject: str, text: str, _figures: Mapping[str, object]) -> str:
    stamp = time.strftime("%H:%M:%S", time.localtime(now))
    body = f"{subject} {text}" if subject else text
    return f"{stamp}.{int(now % 1 * 1000):03d} {kind:<7} {body.translate(_CONTROLS)}"


def _json_line(now: float, kind: str, subject: str, text: str, figures: Mapping[str, object]) -> str:
    """The fields that every line has win over figures of the same name."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    finite = {name: None if isinstance(figure, float) and not math.isfinite(figure) else figure for name, figure in figures.items()}
    return json.dumps({**finite, "time": f"{stamp}.{int(now % 1 * 1000):03d}Z", "kind": kind, "subject": subject, "text": text}, default=str)


class LogHandler(logging.Handler):
    """Prints what libraries say through Python's logging: the level as the kind, the logger's name as the subject."""

    def __init__(self, log: Log, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self.log = log
        self.setFormatter(logging.Formatter("%(message)s"))  # adds the traceback, if there is one

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.log.write(record.levelname.lower(), record.name, self.format(record))
        except Exception:  # noqa: BLE001 - a record with wrong arguments must not break the library that made it
            self.log.write("error", record.name, f"unprintable log record: {record.msg!r}")


def capture_logging(log: Log, level: int = logging.WARNING) -> LogHandler:
    """Send Python's logging and warnings to `log` instead of to stderr. Returns the handler, for those who want to take it away again."""
    handler = LogHandler(log, level)
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.captureWarnings(True)
    return handler
