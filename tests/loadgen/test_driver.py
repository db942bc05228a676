"""The loops against a real server that stalls, refuses, hangs up and talks in pieces. No time is asserted but lower bounds that the server makes."""

import gc
import socket
import threading
import time

import numpy as np
import pytest

from tests.loadgen.stage import HANG_UP, evenly, reply, serving
from wakeful.loadgen.calls import Call, post
from wakeful.loadgen.driver import closed, open_loop
from wakeful.loadgen.results import Results

CALL = Call(post("host", "/v2/models/m/infer", b'{"inputs":[]}'), 1, "m")
STALL, BEFORE = 0.3, 20
"""Seconds for which the server stands still, and the requests that it answers before."""


class Stalling:
    """Answers at once, but stands still at one request; those that come meanwhile wait."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, number: int, request: bytes) -> list[bytes]:
        with self.lock:
            if number == BEFORE + 1:
                time.sleep(STALL)
        return [reply()]


def most_at_once(results: Results) -> int:
    """The largest number of calls that were without an answer at the same time."""
    start, took = np.array(results.start), np.array(results.seconds)
    return max(int(((start <= moment) & (start + took > moment)).sum()) for moment in start + took - 1e-6)


@pytest.mark.parametrize("connections", [1, 256])
def test_an_open_loop_counts_a_stall_for_every_call_that_was_due_in_it(connections: int) -> None:
    with serving(Stalling()) as server:
        results = open_loop(server.address, [CALL], evenly(200, 0.5), connections=connections)
    assert (len(results), results.ok(), results.errors) == (100, 100, {})
    # 60 calls are due in the first 0.3 s, 20 are answered before the server stands still, which is at 0.1 s or later.
    assert sum(seconds >= STALL - 0.2 for seconds in results.seconds) >= 39
    assert most_at_once(results) >= 39
    assert list(results.start) == sorted(results.start)
    assert list(results.start) == pytest.approx(evenly(200, 0.5), abs=1e-6)
    assert 0 <= results.lag <= max(results.seconds)


def test_a_closed_loop_hides_it() -> None:
    """One caller, one call in the stall: the others are simply not made."""
    with serving(Stalling()) as server:
        results = closed(server.address, [CALL], connections=1, seconds=60, most=100)
    assert (len(results), results.ok(), results.lag) == (100, 100, 0.0)
    assert max(results.seconds) >= STALL
    assert most_at_once(results) == 1
    assert results.wall >= STALL


def test_calls_are_taken_in_turn_or_by_order() -> None:
    calls = [Call(post("host", f"/{name}", b"{}"), rows, name) for name, rows in (("a", 1), ("b", 4))]
    with serving(lambda number, request: [reply()]) as server:
        assert list(closed(server.address, calls, connections=1, seconds=60, most=4).call) == [0, 1, 0, 1]
        assert list(closed(server.address, calls, connections=1, seconds=60, most=4, order=[1, 1, 0]).call) == [1, 1, 0, 1]
        results = open_loop(server.address, calls, np.array([0, 0.001, 0.002]), connections=1, order=np.array([1, 0, 1]))  # type: ignore[arg-type]
        assert list(results.call) == [1, 0, 1]
        assert [request.split(b" ")[1] for request in server.requests[-3:]] == [b"/b", b"/a", b"/b"]
        assert results.rows_per_second(calls) == pytest.approx(9 / results.wall)


def test_refusals_are_counted_and_the_first_is_quoted() -> None:
    def behave(number: int, request: bytes) -> list[bytes]:
        return [reply() if number % 2 else reply(b'{"error": "full %d"}' % number, "429 Too Many Requests", "Retry-After: 1")]

    with serving(behave) as server:
        results = closed(server.address, [CALL], connections=1, seconds=60, most=10)
    assert list(results.status) == [200, 429] * 5
    assert results.errors == {429: '{"error": "full 2"}'}
    assert results.ok() == 5
    assert not np.isnan(results.seconds).any()


def test_a_server_that_closes_idle_connections_loses_no_call() -> None:
    with serving(lambda number, request: [reply(), HANG_UP]) as server:
        results = closed(server.address, [CALL], connections=2, seconds=60, most=30)
        assert results.ok() == len(results) == 30
        results = open_loop(server.address, [CALL], evenly(500, 0.1))
        assert results.ok() == len(results) == 50


def test_connection_close_is_followed_by_another_connection() -> None:
    with serving(lambda number, request: [reply(b"{}", "200 OK", "Connection: close"), HANG_UP]) as server:
        results = closed(server.address, [CALL], connections=2, seconds=60, most=20)
        assert results.ok() == len(results) == 20
        assert len(server.connections) >= 20


def test_answers_in_pieces_chunked_and_without_a_length() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{}\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n"
    forms = [
        [chunked], [chunked[index : index + 1] for index in range(len(chunked))],
        [b"HTTP/1.1 100 Continue\r\n\r\n", reply()[:30], reply()[30:]], [b"HTTP/1.0 200 OK\r\n\r\nuntil", b" the end", HANG_UP],
    ]
    with serving(lambda number, request: forms[(number - 1) % len(forms)]) as server:
        results = closed(server.address, [CALL], connections=1, seconds=60, most=12)
    assert results.ok() == len(results) == 12


def test_a_large_body_goes_out_as_the_server_takes_it() -> None:
    body = bytes(range(256)) * (1 << 15)
    call = Call(post("host", "/x", body), 1, "m")
    with serving(lambda number, request: [reply(bytes(1 << 20))]) as server:
        results = closed(server.address, [call], connections=2, seconds=60, most=4)
        assert results.ok() == 4
        assert all(request.endswith(body) and request == call.data for request in server.requests)


def test_an_answer_before_all_was_sent() -> None:
    """What is left of the body must not be taken for the next request."""
    small, large = CALL, Call(b"POST /x HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + bytes(1 << 26), 1, "large")
    with serving(lambda number, request: [reply(), HANG_UP] if request.startswith(b"POST /x") else [reply()]) as server:
        results = closed(server.address, [small, large], connections=1, seconds=60, most=8)
        assert len(results) == 8
        assert list(results.status)[::2] == [200] * 4
        assert sum(request == small.data for request in server.requests) == 4


def test_a_name_of_several_addresses() -> None:
    with serving(lambda number, request: [reply()]) as server:
        results = closed(("localhost", server.address[1]), [CALL], connections=1, seconds=60, most=3)
        assert results.ok() == 3


def test_an_answer_that_breaks_off() -> None:
    with serving(lambda number, request: [reply(b"x" * 100)[:-50], HANG_UP]) as server:
        results = closed(server.address, [CALL], connections=1, seconds=60, most=1)
    assert list(results.status) == [0]
    assert np.isnan(results.seconds[0])
    assert results.errors[0] == "the server closed the connection before its answer was whole"
    assert np.isnan(results.percentile(99))


def test_what_is_no_http() -> None:
    with serving(lambda number, request: [b"SSH-2.0-OpenSSH\r\n\r\n"]) as server:
        results = closed(server.address, [CALL], connections=1, seconds=60, most=1)
    assert results.errors[0].startswith("the answer begins with b'SSH-2.0")


def test_no_call_waits_for_ever() -> None:
    with serving(lambda number, request: []) as server:
        results = closed(server.address, [CALL], connections=3, seconds=0.1, timeout=0.2)
        assert set(results.status) == {0}
        assert results.errors == {0: "no answer within 0.2 s"}
        results = open_loop(server.address, [CALL], evenly(100, 0.1), connections=1, timeout=0.2)
    assert len(results) == 10
    assert set(results.status) == {0}


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    results = closed(address, [CALL], connections=2, seconds=0.2)
    assert len(results) >= 2
    assert (set(results.status), results.errors) == ({0}, {0: "connection refused"})
    results = open_loop(address, [CALL], evenly(100, 0.05))
    assert list(results.status) == [0] * 5


def test_ctrl_c_ends_with_what_was_measured() -> None:
    def stop(share: float) -> None:
        if len(server.requests) >= 11:  # both callers have an answer for all but their last call
            raise KeyboardInterrupt

    with serving(lambda number, request: [reply()] if number < 10 else []) as server:
        results = closed(server.address, [CALL], connections=2, seconds=600, progress=stop)
        assert results.interrupted
        assert results.ok() == len(results) == 9
        assert (results.under_way, results.errors) == (2, {})
        assert results.oldest > 0
        results = open_loop(server.address, [CALL], evenly(100, 600), progress=stop)
    assert results.interrupted
    assert results.under_way >= 1 or not len(results)
    assert gc.isenabled()


def test_warm_up_is_left_out() -> None:
    """What was answered in it. The second call is sent in it and answered later."""
    over = threading.Event()
    warmup, seconds = 1.0, 60.0

    def behave(number: int, request: bytes) -> list[bytes]:
        if number == 2:
            over.wait()
        return [reply()]

    def watch(share: float) -> None:
        if share * (warmup + seconds) > warmup + 0.05:
            over.set()

    with serving(behave) as server:
        results = closed(server.address, [CALL], connections=1, seconds=seconds, warmup=warmup, most=3, progress=watch)
        assert len(server.requests) == 3
    assert results.start[0] < 0 < results.start[-1]
    assert all(start + took >= 0 for start, took in zip(results.start, results.seconds, strict=True))
    assert 0 < results.wall < seconds


def test_progress_reaches_its_end_and_never_falls() -> None:
    shares: list[float] = []
    with serving(lambda number, request: [reply()]) as server:
        closed(server.address, [CALL], connections=1, seconds=0.25, progress=shares.append)
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


def test_nothing_to_send() -> None:
    with pytest.raises(ValueError, match="no call"):
        closed(("127.0.0.1", 1), [], connections=1, seconds=1)
    with pytest.raises(ValueError, match="connection"):
        closed(("127.0.0.1", 1), [CALL], connections=0, seconds=1)
    with serving(lambda number, request: [reply()]) as server:
        assert len(open_loop(server.address, [CALL], [])) == 0
