"""The log against real pipes: one that is read, one that nobody reads, one whose reader has gone."""

import json
import logging
import os
import re
import warnings
from collections.abc import Iterator

import pytest

from wakeful.telemetry.events import Events
from wakeful.telemetry.logs import LINE_LIMIT, Format, Log, capture_logging


class Pipe:
    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self._open = {self.reader, self.writer}

    def read(self) -> bytes:
        """What was written until now and fits into the pipe; at least one byte."""
        return os.read(self.reader, 1 << 20)

    def read_to_end(self) -> bytes:
        """Everything, once nobody writes any more."""
        self.close(self.writer)
        with open(self.reader, "rb", closefd=False) as file:
            return file.read()

    def close(self, *fds: int) -> None:
        for fd in self._open.intersection(fds):
            os.close(fd)
        self._open.difference_update(fds)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close(pipe.reader, pipe.writer)


def printed(pipe: Pipe, *line: object, format: Format = "text", encoding: str = "utf-8") -> str:
    log = Log(pipe.writer, format, encoding=encoding, now=lambda: 1_700_000_000.25)
    log.write(*line)  # type: ignore[arg-type]  # the caller gives what write takes
    assert log.close()
    return pipe.read_to_end().decode(encoding)


def test_a_text_line(pipe: Pipe) -> None:
    line = printed(pipe, "scale", "search-embedder", "2→3  queue 11 > 8", {"queue": 11})
    assert re.fullmatch(r"\d\d:\d\d:20\.250 scale   search-embedder 2→3  queue 11 > 8\n", line)


def test_a_text_line_about_the_daemon(pipe: Pipe) -> None:
    assert printed(pipe, "ready", "", "127.0.0.1:8080").endswith("250 ready   127.0.0.1:8080\n")


def test_a_json_line(pipe: Pipe) -> None:
    figures = {"queue": 11, "limit": float("inf"), "path": os, "kind": "of no use"}
    line = printed(pipe, "scale", "m", "a\nb \udcff", figures, format="json")
    assert line.count("\n") == 1
    fields = json.loads(line, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    assert fields == {
        "time": "2023-11-14T22:13:20.250Z", "kind": "scale", "subject": "m", "text": "a\nb \udcff", "queue": 11, "limit": None, "path": str(os),
    }


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode(pipe: Pipe, encoding: str) -> None:
    line = printed(pipe, "scale", "m", "2→3 × 4 … 日", encoding=encoding)
    assert line.endswith("m 2->3 x 4 ... \\u65e5\n")


def test_text_from_outside_cannot_fake_a_line_or_steer_a_terminal(pipe: Pipe) -> None:
    line = printed(pipe, "refuse", "m", "bad\n14:02:11.204 ready\x1b[2J\r\x9b1m")
    assert line.endswith("m bad\n    14:02:11.204 ready\\x1b[2J\\x0d\\x9b1m\n")


def test_a_monstrous_message_is_cut(pipe: Pipe) -> None:
    line = printed(pipe, "error", "m", "x" * 1_000_000)
    assert line.endswith("x…\n")
    assert len(line) < LINE_LIMIT + 100


def test_a_full_pipe_drops_lines_and_counts_them(pipe: Pipe) -> None:
    log = Log(pipe.writer, encoding="utf-8", capacity=10)
    text = "x" * 8000
    while not log.dropped:  # the pipe fills, then the writer's hands, then the queue; nothing of it holds us up
        log.write("load", "m", text)
    for _ in range(5):
        log.write("load", "m", text)
    dropped = log.dropped
    assert dropped >= 6

    output = b""
    while b"lines dropped" not in output:
        output += pipe.read()
        if log._queue.empty():
            log.write("ready", "m", "the reader is back")
    (said,) = re.findall(rb"warning log (\d+) lines dropped", output)
    assert dropped <= int(said) <= log.dropped


def test_close_does_not_wait_for_a_reader_that_never_comes(pipe: Pipe) -> None:
    log = Log(pipe.writer, encoding="utf-8")
    while log._queue.qsize() < 100:  # the pipe is full, the writer stuck
        log.write("load", "m", "x" * 8000)
    assert not log.close(timeout=0.01)
    log.write("load", "m", "too late")
    assert log.dropped == 1
    pipe.close(pipe.reader)  # lets the writer go
    log._writer.join()


def test_a_reader_that_has_gone(pipe: Pipe) -> None:
    pipe.close(pipe.reader)
    log = Log(pipe.writer)
    for _ in range(3):
        log.write("load", "m", "nobody hears it")
    assert log.flush(60)
    assert log.dropped == 3
    assert log.close(60)


def test_a_descriptor_that_another_process_made_non_blocking(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, False)
    log = Log(pipe.writer, encoding="ascii")
    for number in range(100):
        log.write("load", "m", f"{number} {'x' * 4000}")
    output = b""
    while output.count(b"\n") < 100:
        output += pipe.read()
    assert [int(number) for number in re.findall(rb"m (\d+) x", output)] == list(range(100))
    assert log.close(60)
    assert log.dropped == 0


def test_events_print_their_line(pipe: Pipe) -> None:
    log = Log(pipe.writer, "json")
    Events(log).emit("evict", "a", "for b  needs 100, free 20", needs=100, free=20)
    assert log.close()
    fields = json.loads(pipe.read_to_end())
    assert (fields["kind"], fields["subject"], fields["text"], fields["needs"]) == ("evict", "a", "for b  needs 100, free 20", 100)


def test_libraries_speak_through_the_log(pipe: Pipe) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    log = Log(pipe.writer, encoding="utf-8")
    root.handlers = []  # else basicConfig would close pytest's
    try:
        capture_logging(log)
        library = logging.getLogger("library")
        library.info("not worth a line")
        library.warning("slow: %d ms", 250)
        library.warning("wrong arguments: %d", "x")
        try:
            raise ValueError("broken")
        except ValueError:
            library.exception("failed")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    finally:
        logging.captureWarnings(False)
        root.handlers, root.level = before, level
    assert log.close()
    output = pipe.read_to_end().decode()
    assert "info" not in output
    assert "warning library slow: 250 ms\n" in output
    assert "error   library unprintable log record: 'wrong arguments: %d'\n" in output
    assert "error   library failed\n    Traceback" in output
    assert "\n    ValueError: broken\n" in output
    assert "DeprecationWarning: old" in output
