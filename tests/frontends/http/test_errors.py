"""Errors over HTTP: complete tables, headers, and the words that SnoozeML's client looks for."""

import json
import math

import pytest

from wakeful import errors
from wakeful.frontends.http.errors import (
    OIP_STATUS,
    SNOOZE_STATUS,
    HeadersTooLarge,
    MethodNotAllowed,
    UnsupportedMedia,
    render,
)
from wakeful.frontends.wording import Dialect

DIALECTS: list[Dialect] = ["oip", "snooze"]


@pytest.mark.parametrize("table", [OIP_STATUS, SNOOZE_STATUS])
def test_every_code_has_a_status(table: dict[str, int]) -> None:
    assert set(table) == {error.code for error in errors.ALL_ERRORS}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", errors.ALL_ERRORS)
def test_the_body_is_the_message(dialect: Dialect, kind: type[errors.WakefulError]) -> None:
    status, _, body = render(kind('model "m" said\nno'), dialect)
    assert status >= 400
    assert json.loads(body)["error"].endswith('model "m" said\nno')


def test_a_full_queue_is_429_or_for_snooze_503() -> None:
    error = errors.Overloaded("queue is full", retry_after=1.2, unstarted=True)
    assert render(error, "oip") == (429, [("retry-after", "2"), ("x-wakeful-unstarted", "1")], b'{"error":"queue is full"}')
    assert render(error, "snooze")[0] == 503


@pytest.mark.parametrize(
    ("seconds", "sent"), [(None, "1"), (0, "1"), (0.2, "1"), (1, "1"), (1.01, "2"), (-3, "1"), (math.inf, "3600"), (math.nan, "1")]
)
def test_retry_after_is_a_whole_number_from_one(seconds: float | None, sent: str) -> None:
    assert ("retry-after", sent) in render(errors.Unavailable("x", retry_after=seconds), "snooze")[1]


def test_no_retry_after_where_another_try_is_no_use() -> None:
    assert render(errors.InvalidInput("x", retry_after=3), "oip")[1] == []


def test_credentials_are_asked_for() -> None:
    assert render(errors.Unauthenticated("no key"), "oip")[:2] == (401, [("www-authenticate", "Bearer")])


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.InvalidInput("inputs[0].shape[0]: expected `int` >= 0"), "shape mismatch: inputs[0].shape[0]: expected `int` >= 0"),
        (errors.InvalidInput("Shape mismatch: shape"), "Shape mismatch: shape"),
        (errors.InvalidInput("inputs[0].name: expected a name, got ' '"), "inputs[0].name: expected a name, got ' '"),
        (errors.OutOfMemory("no room for m"), "out of memory: no room for m"),
        (errors.OutOfMemory("Out of memory"), "Out of memory"),
        (errors.ExecutionFailed("bad shape"), "bad shape"),
    ],
)
def test_words_for_snooze(error: errors.WakefulError, text: str) -> None:
    assert json.loads(render(error, "snooze")[2]) == {"error": text}
    assert json.loads(render(error, "oip")[2]) == {"error": error.message}


def test_errors_of_http_alone() -> None:
    assert render(MethodNotAllowed("PUT", ["GET", "POST"]), "oip")[:2] == (405, [("allow", "GET, POST")])
    assert render(UnsupportedMedia("content encoding br", ["gzip", "deflate"]), "snooze")[:2] == (
        415,
        [("accept-encoding", "gzip, deflate")],
    )
    assert render(UnsupportedMedia("content type"), "oip")[:2] == (415, [])
    assert render(HeadersTooLarge("more than 64 KiB"), "oip")[0] == 431


def test_a_fault_of_ours_keeps_its_text_to_itself() -> None:
    assert render(KeyError("secret"), "oip") == (500, [], b'{"error":"internal error"}')


def test_a_message_that_is_not_unicode() -> None:
    assert json.loads(render(errors.NotFound("model \udcff"), "oip")[2]) == {"error": "model ?"}
