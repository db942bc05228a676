"""A channel is one end of a Unix SEQPACKET pair: whole messages, in order, with descriptors beside them, and an end of file when the peer dies."""

import array
import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from wakeful.errors import Unavailable
from wakeful.runtime.messages import PACKET, encode

Message = TypeVar("Message")


def pair() -> tuple[socket.socket, socket.socket]:
    """A connected pair of channel sockets. Raises Unavailable when no descriptors are left."""
    try:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise Unavailable(f"there is no room for another process: {error.strerror}") from None


def send_descriptors(sock: socket.socket, data: bytes, descriptors: Sequence[int]) -> None:
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])


def receive_descriptors(sock: socket.socket, count: int) -> tuple[bytes, list[int]]:
    """One message and up to `count` descriptors, which are closed on exec."""
    descriptors = array.array("i")  # not socket.recv_fds, which forgets its flags
    data, ancillary, _, _ = sock.recvmsg(PACKET, socket.CMSG_SPACE(count * descriptors.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content)
    return data, list(descriptors)


class Channel(Generic[Message]):
    """The daemon's end: never blocks, and tells its owner about each message and about the peer's end."""

    def __init__(
        self,
        sock: socket.socket,
        decode: Callable[[bytes], Message],
        on_message: Callable[[Message], None],
        on_end: Callable[[], None],
    ) -> None:
        self._sock = sock
        self._decode = decode
        self._on_message = on_message
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self.closed = False
        self.fault = ""
        """What the peer did that ended the channel, though it may live on; empty when it just went."""
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._readable)

    def send(self, message: msgspec.Struct, descriptors: Sequence[int] = ()) -> None:
        """Send one message. A peer that has died is not an error here: its end of file tells, in order, after all that it said before."""
        if self.closed:
            return
        try:
            if descriptors:
                send_descriptors(self._sock, encode(message), descriptors)
            else:
                self._sock.send(encode(message))
        except OSError as error:  # broken pipe, or a peer so stuck that its buffer is full: both end in the loss of the peer
            self._loop.call_soon(self._end, "does not read what it is told" if isinstance(error, BlockingIOError) else "")

    def _readable(self) -> None:
        try:
            data = self._sock.recv(PACKET)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        try:
            message = self._decode(data)
        except msgspec.MsgspecError:  # garbage from a broken child: it cannot be trusted any more
            self._end("said what is no message")
            return
        self._on_message(message)

    def _end(self, fault: str = "") -> None:
        if not self.closed:
            self.fault = fault
            self.close()
            self._on_end()

    def drop(self) -> None:
        """Take the peer for lost, without waiting for its end of file: a process that it has left behind may hold its end open."""
        self._loop.call_soon(self._end)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()


def decoder(kind: Any) -> Callable[[bytes], Any]:
    """A decoder for a union of messages."""
    return msgspec.msgpack.Decoder(kind).decode
