"""Errors over gRPC: a complete table, trailing metadata, and the words that SnoozeML's client looks for."""

import grpc
import pytest

from wakeful import errors
from wakeful.frontends.grpc.errors import CODES, LONGEST_TEXT, Code, render

STATUS = {status.value[0]: status.name for status in grpc.StatusCode}


def test_the_numbers_are_those_of_grpc() -> None:
    assert all(STATUS[code] == code.name for code in Code)


def test_every_code_has_its_status() -> None:
    """The table of design and documentation."""
    assert {code: STATUS[number] for code, number in CODES.items()} == {
        "invalid_input": "INVALID_ARGUMENT", "too_large": "RESOURCE_EXHAUSTED", "unauthenticated": "UNAUTHENTICATED",
        "forbidden": "PERMISSION_DENIED", "not_found": "NOT_FOUND", "conflict": "FAILED_PRECONDITION",
        "overloaded": "RESOURCE_EXHAUSTED", "unavailable": "UNAVAILABLE",
        "out_of_memory": "RESOURCE_EXHAUSTED", "timeout": "DEADLINE_EXCEEDED", "execution_failed": "INTERNAL",
    }
    assert set(CODES) == set(errors.BY_CODE)


@pytest.mark.parametrize(("error", "metadata"), [
    (errors.Overloaded("full", retry_after=2.1), (("retry-after", "3"),)),
    (errors.Unavailable("stopping", unstarted=True), (("retry-after", "1"), ("x-wakeful-unstarted", "1"))),
    (errors.OutOfMemory("out of memory"), (("retry-after", "1"),)),
    (errors.TooLarge("too large"), ()),
    (errors.NotFound("nobody"), ()),
])
def test_what_a_client_may_do_is_trailing_metadata(error: errors.WakefulError, metadata: tuple[tuple[str, str], ...]) -> None:
    assert render(error, "oip") == (CODES[error.code], error.message, metadata)


def test_a_fault_of_ours_tells_nothing() -> None:
    assert render(KeyError("secret"), "oip") == (Code.INTERNAL, "internal error", ())


@pytest.mark.parametrize(("error", "text"), [
    (errors.InvalidInput("inputs[0].shape: wrong"), "shape mismatch: inputs[0].shape: wrong"),
    (errors.OutOfMemory("no room"), "out of memory: no room"),
])
def test_the_words_of_snoozeml(error: errors.WakefulError, text: str) -> None:
    assert render(error, "snooze")[1] == text
    assert render(error, "oip")[1] == error.message


def test_a_long_text_is_cut_between_letters() -> None:
    text = render(errors.NotFound("€" * 10_000), "oip")[1]
    assert text == "€" * (LONGEST_TEXT // 3) + "..."


def test_a_lone_surrogate_does_not_break_it() -> None:
    assert render(errors.NotFound("\udcff"), "oip")[1] == "?"
