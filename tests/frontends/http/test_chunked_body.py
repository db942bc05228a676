"""Chunked bodies: the same however they are cut, and nothing that another reader might take in another way."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.errors import InvalidInput, TooLarge
from wakeful.frontends.http.chunked_body import ChunkedBody


def chunked(pieces: list[bytes], extension: bytes = b"", trailers: bytes = b"") -> bytes:
    chunks = (b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces if piece)
    return b"".join(chunks) + b"0" + extension + b"\r\n" + trailers + b"\r\n"


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(place % (len(data) + 1) for place in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def outcome(parts: list[bytes], limit: int) -> tuple[str, bytes, bytes]:
    """How it ends, the body, and what is behind it, when a body arrives in these parts."""
    body = ChunkedBody(limit, "max_body")
    for index, part in enumerate(parts):
        try:
            rest = body.feed(part)
        except InvalidInput:
            return "refused", b"", b""
        except TooLarge:
            return "too large", b"", b""
        if rest is not None:
            return "complete", bytes(body.body), rest + b"".join(parts[index + 1 :])
    return "incomplete", bytes(body.body), b""


@given(
    st.lists(st.binary(max_size=300), max_size=8),
    st.sampled_from([b"", b";a=b", b" ;x", b';q="a b"', b"  "]),
    st.sampled_from([b"", b"X: 1\r\n", b"X: 1\r\nY: 2\r\n"]),
    st.sampled_from([b"", b"G", b"GET / HTTP/1.1\r\n\r\n", b"\r\n"]),
    st.lists(st.integers(0, 10_000), max_size=30),
)
def test_a_chunked_body_cut_anywhere(pieces: list[bytes], extension: bytes, trailers: bytes, behind: bytes, cuts: list[int]) -> None:
    parts = cut(chunked(pieces, extension, trailers) + behind, cuts)
    assert outcome(parts, 10_000) == ("complete", b"".join(pieces), behind)


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_a_chunked_body_byte_by_byte(step: int) -> None:
    data = chunked([b"hello", b" ", b"world" * 20], b";ext", b"Trailer: x\r\n")
    body = ChunkedBody(1000, "max_body")
    answers = [body.feed(data[at : at + step]) for at in range(0, len(data), step)]
    assert answers[:-1] == [None] * (len(answers) - 1)
    assert answers[-1] == b""
    assert body.body == b"hello " + b"world" * 20


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n", b"x\r\n", b"-1\r\n", b"+1\r\n", b"0x1\r\n", b" 1\r\n", b"1 1\r\n", b"1\n\r\n", b"\0\r\n", b"1;a\nb\r\n", b"1;a\rb\r\n", b"1_0\r\n",
        b"10000000000000000\r\n", b";\r\n", b"1\r\nabc\r\n", b"1\r\na\n0\r\n\r\n", b"1\r\naX\r\n", b"\xb2\r\n", b"0" * 5000, b"1;" + b"a" * 5000,
        b"1;" + b"a" * 5000 + b"\r\n", b"0\r\n" + b"X: 1\r\n" * 10_000,
    ],
)
def test_malformed_chunks(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        ChunkedBody(100, "max_body").feed(data)
    assert outcome([data[at : at + 1] for at in range(len(data))], 100) == ("refused", b"", b"")


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_any_bytes_are_taken_or_refused_alike(data: bytes, cuts: list[int]) -> None:
    assert outcome(cut(data, cuts), 50) == outcome([data], 50)


@pytest.mark.parametrize("size", [b"b", b"7fffffff", b"fffffffffffffff"])
def test_over_the_limit_is_known_from_the_declared_size(size: bytes) -> None:
    body = ChunkedBody(10, "max_body")
    with pytest.raises(TooLarge, match="max_body"):
        body.feed(size + b"\r\n")
    assert body.body == b""


def test_over_the_limit_in_sum() -> None:
    body = ChunkedBody(10, "max_body")
    assert body.feed(b"5\r\naaaaa\r\n5\r\nbbbbb\r\n") is None
    with pytest.raises(TooLarge):
        body.feed(b"1\r\nc\r\n")


class Counted(bytes):
    """Bytes that count how many of them were looked at or copied."""

    seen = 0

    def find(self, wanted: bytes, start: int) -> int:  # type: ignore[override]  # the only form that is used
        found = super().find(wanted, start)
        Counted.seen += (len(self) if found < 0 else found) - start
        return found

    def __getitem__(self, key: slice) -> bytes:  # type: ignore[override]  # slices alone are used
        piece = super().__getitem__(key)
        Counted.seen += len(piece)
        return piece

    def __radd__(self, other: bytes) -> "Counted":
        Counted.seen += len(other) + len(self)
        return Counted(b"%b%b" % (other, self))


@pytest.mark.parametrize("chunk", [1, 2, 1 << 10, 1 << 16, 1 << 21])
def test_the_work_is_linear(chunk: int) -> None:
    """However the chunks are cut, a byte is looked at a few times, not once for each chunk or piece."""
    total = min(chunk << 16, 1 << 22)
    data = chunked([b"x" * chunk] * (total // chunk))
    body = ChunkedBody(total, "max_body")
    Counted.seen = 0
    for at in range(0, len(data), 1 << 16):
        body.feed(Counted(data[at : at + (1 << 16)]))
    assert len(body.body) == total
    assert Counted.seen < 4 * len(data)
