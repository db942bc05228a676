"""What a model prints reaches a pipe in whole lines under its name, and not without bound."""

import os
from collections.abc import Iterator

import pytest

from wakeful.worker import printing
from wakeful.worker.printing import BURST, LONGEST, Lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, Lines]]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, Lines("iris", writer)
    os.close(reader)
    os.close(writer)


def test_lines_are_whole_and_named(pipe: tuple[int, Lines]) -> None:
    reader, lines = pipe
    lines.write(b"one\ntw")
    lines.write(b"o\nthree")
    assert os.read(reader, 1000) == b"iris: one\niris: two\n"


def test_a_long_line_is_cut(pipe: tuple[int, Lines]) -> None:
    reader, lines = pipe
    lines.write(b"x" * 100_000 + b"\n")
    assert os.read(reader, 100_000) == b"iris: " + b"x" * LONGEST + b"\n"


def test_without_end_it_is_left_out_and_counted(pipe: tuple[int, Lines], monkeypatch: pytest.MonkeyPatch) -> None:
    reader, lines = pipe
    now = lines._seen
    monkeypatch.setattr(printing, "monotonic", lambda: now)
    for _ in range(BURST + 500):
        lines.write(b"again\n")
    assert os.read(reader, 1_000_000).count(b"again") == BURST
    now += 1
    lines.write(b"later\n")
    assert os.read(reader, 1000) == b"iris: (500 lines were left out)\niris: later\n"


def test_a_full_pipe_holds_nobody_up(pipe: tuple[int, Lines]) -> None:
    reader, lines = pipe
    for _ in range(100):
        lines.write(b"x" * LONGEST + b"\n")
    assert len(os.read(reader, 1_000_000)) <= 64 * 1024
    lines.write(b"end\n")
    assert b"lines were left out" in os.read(reader, 1000)
