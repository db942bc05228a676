"""One HTTP request over a connection of its own. The standard library's client takes longer to import than all the rest of a verb."""

import io
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from wakeful.clock import monotonic

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")
_LONGEST_LINE = 65536
_PIECE = 1 << 20
MOST_BYTES = 1 << 30
"""Of an answer."""
_PORTS = {"http": 80, "https": 443}


class NotHttp(ValueError):
    """What answers is no web server."""


class Address(NamedTuple):
    scheme: str
    host: str
    port: int
    prefix: str = ""
    """Of every path, as a proxy may want it."""

    def __str__(self) -> str:
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}{self.prefix}"


class _Incoming(io.RawIOBase):
    """What comes until a moment, and not more than an answer may have: who sends a byte now and then for ever has not answered either."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock = sock
        self._until = until
        self._left = MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError
        if self._left <= 0:
            raise NotHttp(f"the answer has more than {MOST_BYTES >> 20} MiB")
        self._sock.settimeout(left)
        count = self._sock.recv_into(buffer)
        self._left -= count
        return count


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    """By names in small letters."""
    body: bytes


def parse(url: str) -> Address:
    """Of "http://host:port/prefix", or without scheme, port and prefix. Raises ValueError with what is wrong."""
    scheme, found, rest = url.rpartition("://")
    scheme = scheme if found else "http"
    authority, _, prefix = rest.partition("/")
    if scheme not in _PORTS or not authority or "@" in authority:
        raise ValueError(f"expected http://HOST:PORT, got {url!r}")
    host, port = authority, ""
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        port = port.removeprefix(":")
    elif ":" in authority:
        host, _, port = authority.partition(":")
    if not host or (port and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise ValueError(f"expected http://HOST:PORT, got {url!r}")
    return Address(scheme, host, int(port) if port else _PORTS[scheme], f"/{prefix.strip('/')}" if prefix.strip("/") else "")


def quoted(text: str) -> str:
    """For a path; slashes stay. Bytes of a command line that are no UTF-8 stay what they are."""
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text.encode(errors="surrogateescape"))


def query(**values: object) -> str:
    """ "?a=1&b=x", without those that are None or empty."""
    pairs = [f"{name}={quoted(str(value))}" for name, value in values.items() if value not in (None, "")]
    return f"?{'&'.join(pairs)}" if pairs else ""


def exchange(address: Address, method: str, path: str, headers: dict[str, str], body: bytes, seconds: float) -> Answer:
    """Raises OSError (TimeoutError among them: the answer was not there after so many seconds) and NotHttp."""
    until = monotonic() + seconds
    with _connected(address, seconds) as sock:
        default = address.port == _PORTS[address.scheme]
        host = f"[{address.host}]" if ":" in address.host else address.host
        lines = [f"{method} {address.prefix}{path} HTTP/1.1", f"host: {host}{'' if default else f':{address.port}'}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body or method == "POST":
            lines.append(f"content-length: {len(body)}")
        sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        with io.BufferedReader(_Incoming(sock, until)) as reader:
            return _read(reader)


@contextmanager
def _connected(address: Address, seconds: float) -> Iterator[socket.socket]:
    with socket.create_connection((address.host, address.port), seconds) as sock:
        if address.scheme == "http":
            yield sock
            return
        import ssl  # noqa: PLC0415 - takes as long to import as everything else

        with ssl.create_default_context().wrap_socket(sock, server_hostname=address.host) as secured:
            yield secured


def _read(reader: BinaryIO) -> Answer:
    version, _, rest = _line(reader).partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not code.isdecimal():
        raise NotHttp("what answers there does not speak HTTP")
    headers: dict[str, str] = {}
    while line := _line(reader):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return Answer(int(code), headers, b"".join(_chunks(reader)))
    length = headers.get("content-length")
    body = reader.read() if length is None else _exactly(reader, int(length)) if length.isdecimal() else b""
    return Answer(int(code), headers, body)


def _chunks(reader: BinaryIO) -> Iterator[bytes]:
    while True:
        size = int(_line(reader).partition(";")[0] or "0", 16)
        if not size:
            return
        yield _exactly(reader, size)
        _line(reader)


def _exactly(reader: BinaryIO, size: int) -> bytes:
    """In pieces: memory is taken for what comes, not for what is announced."""
    pieces, left = [], size
    while left > 0:
        piece = reader.read(min(left, _PIECE))
        if not piece:
            raise ConnectionResetError("the connection ended in the middle of an answer")
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _line(reader: BinaryIO) -> str:
    line = reader.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise NotHttp("what answers there does not speak HTTP") if line else ConnectionResetError("the connection was closed without an answer")
    return line.rstrip(b"\r\n").decode("latin-1")
