"""Where an answer ends, however it is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.loadgen.answers import CHUNKED, KEPT, LONGEST_HEAD, UNTIL_CLOSED, Answer, Head, Malformed, parse_head

PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
IN_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3 ;a=b\r\nllo\r\n0\r\nTrailer: x\r\n\r\n"
AFTER_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN


@pytest.mark.parametrize(("head", "expected"), [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 12", Head(200, 12, True)),
    (b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH:12 \r\nServer: x", Head(200, 12, True)),
    (b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: Close", Head(429, 0, False)),
    (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nContent-Length: 3", Head(200, CHUNKED, True)),
    (b"HTTP/1.1 200 OK\r\nX-Content-Length: 3", Head(200, UNTIL_CLOSED, False)),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 3", Head(200, 3, False)),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive", Head(200, 3, True)),
    (b"HTTP/1.1 204\r\nServer: x", Head(204, 0, True)),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9", Head(304, 0, True)),
])
def test_heads(head: bytes, expected: Head) -> None:
    assert parse_head(head) == expected


@pytest.mark.parametrize("head", [b"", b"HTTP/2 200", b"HTTP/1.1 20", b"HTTP/1.1 2000 OK", b"GET / HTTP/1.1"])
def test_what_is_no_head(head: bytes) -> None:
    with pytest.raises(Malformed):
        parse_head(head)


@given(st.sampled_from([PLAIN, IN_CHUNKS, AFTER_INTERIM]), st.sets(st.integers(1, 150)))
def test_cut_anywhere(data: bytes, cuts: set[int]) -> None:
    answer = Answer()
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    whole = [answer.feed(data[begin:end]) for begin, end in pairwise(edges)]
    assert whole == [False] * (len(whole) - 1) + [True]
    assert bytes(answer.body) == b"hello"
    assert not answer.surplus
    assert answer.head is not None
    assert answer.head.status == 200


@pytest.mark.parametrize("data", [PLAIN, IN_CHUNKS])
def test_more_than_one_answer_is_noticed(data: bytes) -> None:
    answer = Answer()
    assert answer.feed(data + b"HTTP/1.1")
    assert answer.surplus


def test_until_the_connection_ends() -> None:
    answer = Answer()
    assert not answer.closed()
    assert not answer.feed(b"HTTP/1.0 500 Oops\r\n\r\nall")
    assert not answer.feed(b" of it")
    assert answer.closed()
    assert bytes(answer.body) == b"all of it"


def test_of_a_large_body_the_beginning_is_kept() -> None:
    answer = Answer()
    assert not answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    assert not answer.feed(b"x" * 999_999)
    assert answer.feed(b"x")
    assert len(answer.body) == KEPT


@pytest.mark.parametrize("data", [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", b"a" * (LONGEST_HEAD + 1),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * (LONGEST_HEAD + 1),
])
def test_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        Answer().feed(data)
