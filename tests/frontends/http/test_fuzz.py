"""Anything may come over a connection: it is answered, or refused, or waited for, and never more than once. See fuzz.py for the rules, the corpus
and the long run."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frontends.http import fuzz
from wakeful.frontends.http.connection import LARGE_BODY

FILES = fuzz.corpus()


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """The fault that one route has by design would be logged a thousand times."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_each_file_of_the_corpus_is_answered_as_its_name_says(path: Path) -> None:
    data = path.read_bytes()
    assert len(data) <= fuzz.LARGEST
    assert fuzz.check(data) == fuzz.expected(path)


def test_a_sample_of_the_long_run() -> None:
    seen, found = fuzz.search([path.read_bytes() for path in FILES], seed=1, count=400)
    print(seen)
    assert found == []
    assert {200, 400, 404, 405, 413, 415} <= set(seen)


def test_a_body_that_goes_to_a_buffer_of_its_own() -> None:
    """Too large for a file of the corpus."""
    body = bytes(LARGE_BODY + 7)
    assert fuzz.check(b"POST /size HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body) + fuzz.PROBE) == [200, 200]


def test_a_broken_rule_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search finds what it is made for: here a rule that forbids what the edge does."""
    def strict(data: bytes) -> list[int]:
        if b"\xff" in data:
            raise AssertionError("no such byte")
        return []

    monkeypatch.setattr(fuzz, "check", strict)
    _, found = fuzz.search([b"some bytes"], seed=1, count=500)
    assert found == [b"\xff"]
