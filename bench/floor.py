"""What the sockets alone cost in Python: a server on the same event loop that looks for the end of a request and answers a constant.

usage: python -m bench.floor [BYTES]      listens on 127.0.0.1, any free port, and prints it; answers so many bytes, or as the tiny model does
"""

import asyncio
import re
import sys
from typing import cast

from bench.servers import Server

ANSWER = b'{"model_name":"tiny","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[1,3],"data":[-5.7141666,1.5783391,6.8746824]}]}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
LISTENS = re.compile(rb"port (\d+)")


class Floor(Server):
    """`size`: bytes of each answer; 0: those of the tiny model."""

    name = "floor"
    binary = True

    def __init__(self, size: int = 0) -> None:
        super().__init__({})
        self._size = size

    def start(self) -> None:
        self.launch([sys.executable, "-m", "bench.floor", str(self._size)])
        self.address = ("127.0.0.1", int(self.wait_said(LISTENS)[1]))


class Constant(asyncio.Protocol):
    """One connection. It takes for granted that a head comes in one piece."""

    def __init__(self, response: bytes) -> None:
        self._response = response
        self._missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # that of uvloop is none by inheritance

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            end = data.find(b"\r\n\r\n") + 4
            length = LENGTH.search(data, 0, end)
            self._missing = end + (int(length[1]) if length else 0)
        self._missing -= len(data)
        if self._missing <= 0:
            self._missing = 0
            self._transport.write(self._response)


async def main(size: int) -> None:
    body = bytes(size) or ANSWER
    server = await asyncio.get_running_loop().create_server(lambda: Constant(HEAD % len(body) + body), "127.0.0.1", 0)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
