"""Bodies on real sockets: large, chunked, too large and encoded ones."""

import gzip
import json
import threading
import zlib
from collections.abc import Callable

import pytest

from tests.daemon import wait_until
from tests.frontends.http.stage import LIMIT, Client, Stage, chunked, get, pattern, post, serving
from wakeful.config.settings import ServerSettings
from wakeful.frontends.http.connection import LARGE_BODY
from wakeful.frontends.http.encoding import MEMBERS

# ── large bodies ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

SIZES = [0, 1, LARGE_BODY - 1, LARGE_BODY, LARGE_BODY + 1, 3 * LARGE_BODY + 7, LIMIT - 1, LIMIT]

ABC = gzip.compress(b"abc", mtime=0)
"""The same at any time: names of tests are made of it."""
HEAD_LIMIT = ServerSettings().max_header


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pieces", ["one", "head apart", "many"])
def test_a_body_of_any_size_with_the_next_request_behind(client: Client, size: int, pieces: str) -> None:
    body = pattern(size)
    data = post("/echo", body) + get("/name/next") + post("/echo", body[:100])
    start = len(data) - len(data.partition(b"\r\n\r\n")[2])
    cuts = {"one": [0], "head apart": [0, start], "many": [0, start - 2, start + 1, *range(start + 10, len(data), 33_333)]}[pieces]
    parts = [data[a:b] for a, b in zip(cuts, [*cuts[1:], len(data)], strict=True)]
    threading.Thread(target=client.send, args=parts).start()
    assert client.receive()[2] == body
    assert client.receive()[2] == b'"next"'
    assert client.receive()[2] == body[:100]


def test_large_bodies_one_after_the_other(client: Client) -> None:
    for number in range(20):
        body = pattern(LARGE_BODY + 1000 * number)
        assert client.ask(post("/echo", body))[2] == body


@pytest.mark.parametrize("held", [False, True])
def test_a_large_body_sent_ahead(stage: Stage, client: Client, held: bool) -> None:
    """More than is read ahead, so that the connection is paused when the large body's turn comes."""
    body = pattern(LIMIT)
    sender = threading.Thread(target=client.send, args=[post("/held" if held else "/echo", b"first") + post("/echo", body) + get("/name/next")])
    sender.start()
    if held:
        wait_until(lambda: stage.held, "the first request is there")
        stage.answer()
    assert client.receive()[2] == (b'"late"' if held else b"first")
    assert client.receive()[2] == body
    assert client.receive()[2] == b'"next"'
    sender.join()


@pytest.mark.parametrize("size", [10, LARGE_BODY - 1, LARGE_BODY, LIMIT])
@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_a_client_that_leaves_in_the_middle_of_its_body(stage: Stage, size: int, how: str) -> None:
    client = stage.connect()
    client.send(post("/echo", pattern(size))[: -size // 2 or -1])
    wait_until(lambda: stage.busy == 1, "the request is under way")
    if how == "half":
        client.finish()
        assert client.rest() == b""
    client.close(reset=how == "reset")


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_leaves_in_the_middle_of_its_head(stage: Stage, reset: bool) -> None:
    client = stage.connect()
    client.send(b"POST /echo HT")
    wait_until(lambda: stage.busy == 1, "the request is under way")
    client.close(reset)


# ── chunks ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 1000, LARGE_BODY, LIMIT])
@pytest.mark.parametrize("cut", [33_333, 1 << 30])
def test_a_chunked_body(client: Client, size: int, cut: int) -> None:
    body = pattern(size)
    data = chunked("/echo", [body[at : at + 50_000] for at in range(0, size, 50_000)]) + get("/name/next")
    client.send(*(data[at : at + cut] for at in range(0, len(data), cut)))
    assert client.receive()[2] == body
    assert client.receive()[2] == b'"next"'


def test_a_chunked_body_over_the_limit(client: Client) -> None:
    status, headers, body = client.ask(chunked("/echo", [pattern(LIMIT), b"x"]))
    assert (status, headers["connection"]) == (413, "close")
    assert b"max_body" in body
    assert client.rest() == b""


def test_a_malformed_chunk(client: Client) -> None:
    status, headers, body = client.ask(chunked("/echo", [b"abc"]).replace(b"3\r\n", b"zz\r\n"))
    assert (status, headers["connection"]) == (400, "close")
    assert b"chunk size in hexadecimal" in body
    assert client.rest() == b""


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [LIMIT + 1, 10 * 1024**3])
def test_too_large_is_known_from_the_declared_length(client: Client, size: int) -> None:
    """No byte of the body has been sent, and nothing invites it."""
    status, headers, body = client.ask(f"POST /echo HTTP/1.1\r\ncontent-length: {size}\r\nexpect: 100-continue\r\n\r\n".encode())
    assert (status, headers["connection"]) == (413, "close")
    assert b"max_body" in body
    assert client.rest() == b""


def test_a_known_head_does_not_help_a_too_large_body() -> None:
    """A request that is wholly there goes straight to its handler where its head was seen before, on whatever connection."""
    with serving(limit=1200) as stage:
        for body, status in ((b"x" * 1300, 413), (b"x" * 1100, 200), (b"x" * 1300, 413)):
            client = stage.connect()
            client.ask(post("/echo", b"x" * 1000))
            assert client.ask(post("/echo", body))[0] == status
            client.close()


def test_a_client_that_sends_its_too_large_body_first_can_read_the_answer(client: Client) -> None:
    client.send(post("/echo", pattern(8 * LIMIT)))
    assert client.receive()[0] == 413
    assert client.rest() == b""


@pytest.mark.parametrize("complete", [True, False])
def test_a_head_over_the_limit(client: Client, complete: bool) -> None:
    status, headers, body = client.ask(get("/name/a", "x: " + "a" * HEAD_LIMIT)[: None if complete else -2])
    assert (status, headers["connection"]) == (431, "close")
    assert b"32 KiB" in body
    assert client.rest() == b""


def test_a_head_just_under_the_limit(client: Client) -> None:
    size = HEAD_LIMIT - len(get("/name/a", "x: "))
    assert client.ask(get("/name/a", "x: " + "a" * size))[2] == b'"a"'
    assert client.ask(get("/name/a", "x: " + "a" * (size + 1)))[0] == 431


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"hello\n", b"GET / HTTP/1.1\n\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 100]
)
def test_garbage(client: Client, data: bytes) -> None:
    """Also what has no end of a head: a client that speaks TLS need not wait to hear that we do not."""
    status, headers, body = client.ask(data)
    assert (status, headers["connection"]) == (400, "close")
    assert json.loads(body)["error"]
    assert client.rest() == b""


def test_nothing_after_a_malformed_request_is_answered(client: Client) -> None:
    client.send(b"POST /echo HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + get("/name/smuggled"))
    assert client.receive()[0] == 400
    assert client.rest() == b""


# ── encodings ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000, LIMIT])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP", "identity"])
def test_encoded_bodies(client: Client, size: int, encoding: str) -> None:
    body = pattern(size)
    coders: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}
    coded = coders[encoding.lower()](body)
    client.send(post("/echo", coded, f"content-encoding: {encoding}") + get("/name/next"))
    assert client.receive()[2] == body
    assert client.receive()[2] == b'"next"'


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "x", ""])
def test_an_encoding_that_is_not_known(client: Client, encoding: str) -> None:
    status, headers, _ = client.ask(post("/echo", b"abc", f"content-encoding: {encoding}"))
    assert (status, headers["accept-encoding"]) == (415, "gzip, deflate")
    assert client.ask(get("/name/next"))[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"plain text", ABC[:-1], ABC[:-8] + bytes(8), ABC + b"garbage",
        zlib.compress(b"abc")[:-1], gzip.compress(pattern(100_000), mtime=0)[:-5], gzip.compress(b"", mtime=0) * (MEMBERS + 1),
    ],
)
def test_a_bad_encoded_body(client: Client, body: bytes) -> None:
    status, _, text = client.ask(post("/echo", body, "content-encoding: gzip"))
    assert status == 400
    assert b"gzip" in text
    assert client.ask(get("/name/next"))[0] == 200


def test_several_members(client: Client) -> None:
    body = gzip.compress(b"one,") + gzip.compress(b"") + gzip.compress(b"two")
    assert client.ask(post("/echo", body, "content-encoding: gzip"))[2] == b"one,two"


@pytest.mark.parametrize("size", [LIMIT + 1, 100 * LIMIT])
@pytest.mark.parametrize("members", [1, 3])
def test_the_limit_counts_inflated_bytes(client: Client, size: int, members: int) -> None:
    coded = b"".join(gzip.compress(bytes(size // members + 1)) for _ in range(members))
    assert client.ask(post("/echo", coded, "content-encoding: gzip"))[0] == 413
    assert client.ask(get("/name/next"))[0] == 200


def test_chunked_and_encoded(client: Client) -> None:
    body = pattern(100_000)
    coded = gzip.compress(body)
    assert client.ask(chunked("/echo", [coded[:1000], coded[1000:]], "content-encoding: gzip"))[2] == body
