"""Anything may come over a connection: `python -m tests.frontends.http.fuzz --seconds 60` mutates the files of the corpus and sends them, in memory.

An input that breaks a rule is made as small as it gets, and written into the corpus, where the tests find it from then on. Files are what a client
sends, byte for byte; their names end in the statuses of the answers, as in `two-requests.200-404.http`.
"""

import argparse
import asyncio
import hashlib
import logging
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

from tests.frontends.http.memory import Edge, heads, play, statuses

CORPUS = Path(__file__).parent / "corpus"
LARGEST = 4096
"""Bytes of a file."""
PROBE = b"GET /health/live HTTP/1.1\r\n\r\n"

NASTY = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b";", b'"', b"\\", b"\xff", b"\xc3\xa4", b"\xed\xa0\x80", b"[", b"]", b"{", b"}", b"%2f",
    b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n",
    b"0\r\n\r\n", b"HTTP/1.1", b"HTTP/1.0", b"ffffffff", b"null", b"true", b"NaN", b"1e999", b"-1", b"0.5", b"\\ud800", b"\\u0000",
    b'"parameters":{"binary_data_size":4},', b'"parameters":{"binary_data_output":true},', b'"outputs":[{"name":"x"}],', b'"id":"\xc3\xa4",',
]
NUMBERS = [
    b"0", b"1", b"-1", b"2", b"255", b"256", b"65535", b"65536", b"131072", b"131073", b"2147483648", b"4294967295", b"4294967296",
    b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"1e5", b"1.0", b"00", b"0x10", b"1" * 40, b"1" * 400,
]
_NUMBER = re.compile(rb"\d+")
_LENGTH = re.compile(rb"(?i)(\r\ncontent-length: *)(\d+)")


def corpus() -> list[Path]:
    return sorted(CORPUS.glob("*.http"))


def expected(path: Path) -> list[int]:
    """Statuses of the answers, as the file's name says."""
    said = path.stem.rpartition(".")[2]
    return [] if said == "none" else [int(status) for status in said.split("-")]


# ── the rules ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check(data: bytes) -> list[int]:
    """Send this over a connection, whole and in pieces. Raises AssertionError for a broken rule; returns the statuses of the answers."""
    rng = Random(zlib.crc32(data))
    ends = rng.random() < 0.5
    edge = Edge()
    answers = _obeyed(edge, [data], ends)
    for parts in (_cut(data, rng.randint(1, 8), rng), _in_bytes(data)):
        others = _obeyed(Edge(), parts, ends)
        assert _alike(answers, others), f"cut otherwise, something else is understood: {others} after {answers}"
    assert statuses(asyncio.run(play(edge, [PROBE], ends=True))) == [200], "the next client is not served"
    return [status for status, _ in answers]


def _obeyed(edge: Edge, parts: list[bytes], ends: bool) -> list[tuple[int, bool]]:
    """Status of each answer and whether it was the last, where each request has at most one answer, and no fault is ours."""
    sent = asyncio.run(play(edge, parts, ends))
    answers, found = heads(sent), statuses(sent)
    closing = [b"connection: close" in answer for answer in answers]
    data = b"".join(parts)
    assert len(answers) >= edge.calls, "a request has no answer"
    assert len(answers) <= data.count(b"\r\n\r\n") + data.count(b"HTTP/") + 1, "a request has several answers"
    assert not any(closing[:-1]), "an answer after the last one"
    assert all(answer.count(b"\r\n\r\n") == 1 for answer in answers), "an answer with two heads"
    assert found.count(500) == edge.faults, f"a fault of ours: {found}"
    assert all(200 <= status < 300 or 400 <= status < 502 for status in found), f"statuses {found}"
    return list(zip(found, closing, strict=True))


def _alike(one: list[tuple[int, bool]], other: list[tuple[int, bool]]) -> bool:
    """However it is cut, the same is understood. But what is refused before its body has come is refused with the connection; what is refused
    with its body there is not."""
    shorter, longer = sorted((one, other), key=len)
    alike = [status for status, _ in shorter] == [status for status, _ in longer[: len(shorter)]]
    return alike and (len(shorter) == len(longer) or bool(shorter and shorter[-1][1] and shorter[-1][0] >= 400))


def _cut(data: bytes, times: int, rng: Random) -> list[bytes]:
    places = sorted(rng.randint(0, len(data)) for _ in range(times))
    return [data[first:last] for first, last in pairwise([0, *places, len(data)])]


def _in_bytes(data: bytes) -> list[bytes]:
    return [*(data[at : at + 1] for at in range(min(len(data), 400))), data[400:]]


# ── mutations ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def mutants(seeds: list[bytes], rng: Random) -> Iterator[bytes]:
    """For ever. Most tell the length of their body as it is after the change, so that what decodes it gets to see it."""
    while True:
        data = rng.choice(seeds)
        for _ in range(rng.choice([1, 1, 2, 3, 6])):
            data = _changed(data, seeds, rng)
        if rng.random() < 0.7:
            data = _with_true_length(data)
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            data += rng.choice(seeds)
        yield data


def _changed(data: bytes, seeds: list[bytes], rng: Random) -> bytes:
    at = rng.randint(0, len(data))
    end = min(len(data), at + rng.choice([0, 1, 1, 2, 5, 30]))
    match rng.randint(0, 7):
        case 0:
            return data[:at] + data[end:]
        case 1 | 2:
            return data[:at] + rng.choice(NASTY) + data[end:]
        case 3:
            return data[:at] + rng.randbytes(rng.randint(1, 4)) + data[end:]
        case 4:
            return data[:end] + data[at:end] * rng.choice([1, 1, 2, 9, 300, 5000]) + data[end:]
        case 5:
            other = rng.choice(seeds)
            start = rng.randint(0, len(other))
            return data[:at] + other[start : start + rng.choice([4, 30, 300])] + data[end:]
        case 6:
            return data[:at] + data[end:] + data[at:end]
        case _:
            numbers = list(_NUMBER.finditer(data))
            if not numbers:
                return data
            number = rng.choice(numbers)
            return data[: number.start()] + rng.choice(NUMBERS) + data[number.end() :]


def _with_true_length(data: bytes) -> bytes:
    head, empty, body = data.partition(b"\r\n\r\n")
    return _LENGTH.sub(rb"\g<1>%d" % len(body), head, count=1) + empty + body


# ── the long run ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def broken_rule(data: bytes) -> str:
    """What is wrong with what this brings about; empty if nothing is."""
    try:
        check(data)
    except Exception as error:  # noqa: BLE001 - that none escapes is one of the rules
        return re.sub(r"[\[\d].*", "", f"{type(error).__name__}: {error}")
    return ""


def smallest(data: bytes) -> bytes:
    """Without whatever can be left out."""
    size = len(data) // 2
    while size:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            if broken_rule(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data


def search(seeds: Iterable[bytes], seed: int, *, seconds: float = float("inf"), count: int = sys.maxsize) -> tuple[Counter[int], list[bytes]]:
    """Try mutants until the time or the count is over: the statuses of the answers, and the smallest input for each broken rule."""
    end = time.monotonic() + seconds
    seen: Counter[int] = Counter()
    found: dict[str, bytes] = {}
    for number, data in enumerate(mutants(list(seeds), Random(seed))):
        if number >= count or time.monotonic() > end:
            break
        rule = ""
        try:
            seen.update(check(data))
        except Exception:  # noqa: BLE001 - as in broken_rule
            rule = broken_rule(data)
        if rule and rule not in found:
            found[rule] = smallest(data)
    seen[0] = number
    return seen, list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.frontends.http.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    logging.disable()
    seen, found = search([path.read_bytes() for path in corpus()], options.seed, seconds=options.seconds)
    print(f"{seen.pop(0)} inputs of seed {options.seed}; answers:", ", ".join(f"{count} x {status}" for status, count in sorted(seen.items())))
    for data in found:
        path = CORPUS / f"found-{hashlib.sha256(data).hexdigest()[:8]}.none.http"
        print(f"{broken_rule(data)}: {data[:200]!r}" + (f", kept as {path}; rename it for what it is" if len(data) <= LARGEST else ""))
        if len(data) <= LARGEST:
            path.write_bytes(data)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
