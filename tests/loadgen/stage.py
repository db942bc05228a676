"""A small server that behaves as a test tells it to, one thread a connection."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
HANG_UP = b"<hang up>"
"""In place of bytes: end the connection."""
Behave = Callable[[int, bytes], "list[bytes]"]
"""From the number of a request (the first is 1) and its bytes to what is sent, piece by piece."""


def reply(body: bytes = b"{}", status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def evenly(rate: int, seconds: float) -> list[float]:
    """Arrivals at equal distances."""
    return [number / rate for number in range(round(rate * seconds))]


class Server:
    def __init__(self, behave: Behave) -> None:
        self.behave = behave
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.address: tuple[str, int] = self.listener.getsockname()
        self.requests: list[bytes] = []
        self.connections: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError), sock:
            while request := _read(sock):
                with self._lock:
                    self.requests.append(request)
                    number = len(self.requests)
                for piece in self.behave(number, request):
                    if piece is HANG_UP:
                        return
                    sock.sendall(piece)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._threads[0].join()
        for sock in self.connections:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


def _read(sock: socket.socket) -> bytes:
    """One whole request; empty at the end."""
    data = bytearray()
    missing = 1
    while missing > 0:
        piece = sock.recv(1 << 20)
        if not piece:
            return b""
        data += piece
        end = data.find(b"\r\n\r\n")
        if end >= 0:
            length = LENGTH.search(data, 0, end)
            missing = end + 4 + (int(length[1]) if length else 0) - len(data)
    return bytes(data)


@contextmanager
def serving(behave: Behave) -> Iterator[Server]:
    server = Server(behave)
    try:
        yield server
    finally:
        server.close()
