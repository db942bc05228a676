"""Forms, however they are cut, and what is none."""

from itertools import pairwise
from random import Random

import pytest

from wakeful.errors import InvalidInput, WakefulError
from wakeful.frontends.http.errors import UnsupportedMedia
from wakeful.frontends.http.multipart import HEAD_LIMIT, MOST_PARTS, Multipart, boundary_of

Parts = list[tuple[str, str | None, bytes]]


class Collected:
    def __init__(self) -> None:
        self.parts: Parts = []
        self.open = False

    def part_begins(self, name: str, filename: str | None) -> None:
        assert not self.open
        self.open = True
        self.parts.append((name, filename, b""))

    def part_data(self, data: bytes) -> None:
        assert self.open
        assert data
        name, filename, before = self.parts[-1]
        self.parts[-1] = name, filename, before + data

    def part_ends(self) -> None:
        assert self.open
        self.open = False


def read(*pieces: bytes, boundary: bytes = b"b") -> Parts:
    form = Collected()
    parser = Multipart(boundary, form)
    for piece in pieces:
        parser.feed(piece)
    parser.finish()
    assert not form.open
    return form.parts


def part(data: bytes, disposition: bytes = b'form-data; name="x"', *more: bytes) -> bytes:
    return b"\r\n".join([b"--b", b"Content-Disposition: " + disposition, *more, b"", data, b""])


END = b"--b--\r\n"
FILE = b'form-data; name="file"; filename="m.onnx"'
FORM = part(b"7", b'form-data; name="max_batch_size"') + part(b"\r\n--\r\n--a\0\xff--b\r\n-", FILE, b"Content-Type: application/octet-stream") + END
PARTS: Parts = [("max_batch_size", None, b"7"), ("file", "m.onnx", b"\r\n--\r\n--a\0\xff--b\r\n-")]


def test_a_form_in_any_pieces() -> None:
    assert read(FORM) == PARTS
    assert read(*(FORM[at : at + 1] for at in range(len(FORM)))) == PARTS
    for at in range(len(FORM)):
        assert read(FORM[:at], FORM[at:]) == PARTS


@pytest.mark.parametrize(("form", "parts"), [
    (END, []),
    (b"\r\n" + part(b"1") + END, [("x", None, b"1")]),
    (part(b"") + END, [("x", None, b"")]),
    (part(b"1") + b"--b \t\r\nContent-Disposition: form-data; name=y\r\n\r\n2\r\n--b--", [("x", None, b"1"), ("y", None, b"2")]),
    (part(b"1", b'form-data; name="a\\"b\\\\c"') + END, [('a"b\\c', None, b"1")]),
    (part(b"1", b'form-data; name="file"; filename="C:\\dir\\m.onnx"') + END, [("file", "C:\\dir\\m.onnx", b"1")]),
    (part(b"1", 'form-data; name="file"; filename="ü%22.onnx"'.encode()) + END, [("file", "ü%22.onnx", b"1")]),
    (part(b"1", b'FORM-DATA; NAME="x"', b"content-transfer-encoding: binary") + END, [("x", None, b"1")]),
    (part(b"1", b'form-data; filename=""; name="x"') + END, [("x", "", b"1")]),
    (part(b"1" * 300_000) + END, [("x", None, b"1" * 300_000)]),
])
def test_what_clients_send(form: bytes, parts: Parts) -> None:
    assert read(form) == parts


@pytest.mark.parametrize(("form", "words"), [
    (b"", "ends before"),
    (part(b"1"), "ends before"),
    (part(b"1") + b"--b-", "ends before"),
    (b"hello" + part(b"1") + END, "begin with --b"),
    (b"--c\r\n", "begin with --b"),
    (b"--bc\r\n\r\n" + END, "line end behind"),
    (b"--b" + b" " * 200 + b"\r\n", "too much space"),
    (part(b"1") + END + b"more", "nothing behind"),
    (b"--b\r\n\r\n1\r\n" + END, "content-disposition"),
    (part(b"1", b"attachment; name=x") + END, "content-disposition"),
    (part(b"1", b'form-data; name="x"', b'Content-Disposition: form-data; name="y"') + END, "one content-disposition"),
    (part(b"1", b"form-data; filename=x") + END, "a name"),
    (part(b"1", b'form-data; name="\xff"') + END, "UTF-8"),
    (part(b"1", b'form-data; name="x"', b"Content-Transfer-Encoding: base64") + END, "transfer-encoding"),
    (part(b"1", b'form-data; name="x"', b"a: " + b"b" * HEAD_LIMIT) + END, f"over {HEAD_LIMIT} bytes"),
    (part(b"1") * (MOST_PARTS + 1) + END, f"more than {MOST_PARTS}"),
])
def test_what_is_no_form(form: bytes, words: str) -> None:
    for pieces in ([form], [form[at : at + 1] for at in range(len(form))]):
        with pytest.raises(InvalidInput, match=words):
            read(*pieces)


@pytest.mark.parametrize(("content_type", "boundary"), [
    ("multipart/form-data; boundary=abc", b"abc"),
    ('Multipart/Form-Data;boundary="a b(c)"', b"a b(c)"),
    ("multipart/form-data; charset=utf-8; boundary=--x-1; more=1", b"--x-1"),
])
def test_the_boundary(content_type: str, boundary: bytes) -> None:
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize(("content_type", "error"), [
    ("", UnsupportedMedia), ("application/json", UnsupportedMedia), ("multipart/mixed; boundary=a", UnsupportedMedia),
    ("multipart/form-data", InvalidInput), ("multipart/form-data; boundary=", InvalidInput),
    ("multipart/form-data; boundary=" + "a" * 71, InvalidInput),
])
def test_no_boundary(content_type: str, error: type[WakefulError]) -> None:
    with pytest.raises(error):
        boundary_of(content_type)


def outcome(*pieces: bytes) -> Parts | None:
    try:
        return read(*pieces)
    except InvalidInput:
        return None


@pytest.mark.parametrize("seed", range(4))
def test_whatever_comes_is_a_form_or_none_however_it_is_cut(seed: int) -> None:
    random = Random(seed)
    seen = set()
    for _ in range(500):
        data = FORM
        for _ in range(random.choice([1, 1, 2, 4])):
            at = random.randint(0, len(data))
            end = min(len(data), at + random.choice([0, 1, 2, 9]))
            data = data[:at] + random.choice([b"", b"\r\n", b"--b", b"\r\n--b", b"--", b'"', b";", b"\\", b"\0", b":", data[at:end] * 2]) + data[end:]
        cuts = sorted(random.randint(0, len(data)) for _ in range(6))
        found = outcome(data)
        assert outcome(*(data[first:last] for first, last in pairwise([0, *cuts, len(data)]))) == found
        seen.add(found is None)
    assert seen == {True, False}
