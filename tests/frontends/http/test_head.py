"""Heads: what is understood, what is refused, and that nobody's reading of a request differs from ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.errors import InvalidInput
from wakeful.frontends.http.head import check_beginning, parse_head

POST = b"POST /x HTTP/1.1\r\nHost: a\r\n"


def test_a_head() -> None:
    head = parse_head(b"POST /v2//models/a%2Fb/infer/?x=1&y=%20 HTTP/1.1\r\nHost: h\r\nX-A:  one \r\nx-a: two\r\nContent-Length: 7\r\n\r\n")
    assert (head.method, head.path, head.query) == ("POST", "/v2/models/a/b/infer", "x=1&y=%20")
    assert head.headers == {"host": "h", "x-a": "one, two", "content-length": "7"}
    assert (head.content_length, head.chunked, head.keep_alive, head.old, head.plain, head.encoded) == (7, False, True, False, True, False)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/", "/"), (b"//", "/"), (b"/?q", "/"), (b"/a#b", "/a"), (b"http://host:80/p/q?x", "/p/q"), (b"http://host", "/"), (b"*", "*"),
        (b"/v2/", "/v2"), (b"/caf%C3%A9", "/café"), (b"/%zz", "/%zz"), (b"/a%00b", "/a\0b"), (b"/a/../b", "/a/../b"),
        (b"/%2e%2e%2fetc", "/../etc"), (b"/a%0d%0ab", "/a\r\nb"),
    ],
)
def test_paths(target: bytes, path: str) -> None:
    assert parse_head(b"GET " + target + b" HTTP/1.1\r\n\r\n").path == path


@pytest.mark.parametrize(
    ("line", "connection", "keep_alive"),
    [
        (b"GET / HTTP/1.1", b"", True),
        (b"GET / HTTP/1.1", b"Connection: close\r\n", False),
        (b"POST / HTTP/1.1", b"Content-Length: 3\r\nConnection: close\r\n", False),
        (b"GET / HTTP/1.0", b"", False),
        (b"GET / HTTP/1.0", b"Connection: Keep-Alive\r\n", True),
        (b"POST / HTTP/1.0", b"Connection: keep-alive\r\nContent-Length: 3\r\n", True),
        (b"GET / HTTP/1.1", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n", True),
        (b"POST / HTTP/1.1", b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n", True),
    ],
)
def test_whether_the_connection_stays(line: bytes, connection: bytes, keep_alive: bool) -> None:
    """An upgrade is an offer, which is not taken."""
    head = parse_head(line + b"\r\n" + connection + b"\r\n")
    assert head.keep_alive is keep_alive
    assert head.old is line.endswith(b"0")
    assert head.plain is (keep_alive and not head.old)


def test_the_answer_to_head_is_not_plain() -> None:
    assert not parse_head(b"HEAD / HTTP/1.1\r\n\r\n").plain


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nContent-Length: 5",
        b"Content-Length: 5\r\nContent-Length: 5", b"Content-Length: 5\r\nContent-Length: 6", b"Content-Length: 5, 5",
        b"Content-Length: +5", b"Content-Length: -5", b"Content-Length: 5 5", b"Content-Length:", b"Content-Length: 0x5",
        b"Content-Length: 1_0", b"Content-Length: 5.0", b"Content-Length: \xb2", b"Content-Length: 99999999999999999999999",
        b"Content-Length : 5", b"Content-Length: 1\r\n 2", b"Content-Length\0: 5",
        b"Transfer-Encoding : chunked", b"Transfer-Encoding:\r\n chunked",
        b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, gzip",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: identity", b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: chunked\xa0", b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding: chunked\x85", b"Transfer-Encoding:",
        b"X: a\r\n folded", b"X: a\0b", b"X: a\rb", b"X: a\nContent-Length: 5", b": x", b"no colon", b"X\xff: a", b"X Y: a",
    ],
)
def test_what_proxies_may_read_differently_is_refused(fields: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_head(POST + fields + b"\r\n\r\n")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\r\n\r\n", b"GET / HTTP/1.1\r\n", b"GET /\r\n\r\n", b"GET / HTTP/1.2\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n",
        b"get / HTTP/1.1\r\n\r\n", b"GET\t/ HTTP/1.1\r\n\r\n", b"GET abc HTTP/1.1\r\n\r\n", b"GET /a\0b HTTP/1.1\r\n\r\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\n\r\n",
        b"GET /%ff HTTP/1.1\r\n\r\n", b"CONNECT a:80 HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    ],
)
def test_what_is_no_request_of_ours(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_head(data)


@pytest.mark.parametrize(
    ("value", "length"), [(b"0", 0), (b" 5 ", 5), (b"\t5", 5), (b"007", 7), (b"9999999999999999", 9999999999999999)]
)
def test_lengths(value: bytes, length: int) -> None:
    assert parse_head(POST + b"Content-Length:" + value + b"\r\n\r\n").content_length == length


@given(st.lists(st.tuples(st.from_regex(rb"[A-Za-z][A-Za-z0-9-]{0,20}", fullmatch=True), st.from_regex(rb"[!-~]{1,40}", fullmatch=True))))
def test_any_fields(fields: list[tuple[bytes, bytes]]) -> None:
    known = {b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"proxy-connection"}
    fields = [(name, value) for name, value in fields if name.lower() not in known]
    head = parse_head(b"GET / HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n")
    for name, _ in fields:
        same = [value for other, value in fields if other.lower() == name.lower()]
        assert head.headers[name.lower().decode()] == b", ".join(same).decode()


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02", b"hello\n", b"{}", b"GET / HTTP/1.1\nHost: a\n\n", b"POST / HTTP/1.1\r\nContent-Length: x"])
def test_what_cannot_become_a_head(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        check_beginning(data)


@given(st.integers(0, len(POST)))
def test_what_can_become_a_head(length: int) -> None:
    check_beginning(POST[:length])
