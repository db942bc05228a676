"""The other end of a process's channel, for tests in which a process says what it should not."""

import ctypes
import os
import socket
from pathlib import Path

from tests.daemon import alive, wait_until

_PIDFD_GETFD = 438
_libc = ctypes.CDLL(None, use_errno=True)


def borrowed(pid: int) -> socket.socket:
    """The channel of a replica or a nursery, as if we were it. Raises OSError where we may not reach into other processes."""
    wait_until(lambda: not alive(pid) or _sockets(pid), "its channel is there")
    number = _sockets(pid)[0]
    handle = os.pidfd_open(pid)
    try:
        descriptor = _libc.syscall(_PIDFD_GETFD, handle, number, 0)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), "no descriptor may be taken from another process")
    finally:
        os.close(handle)
    return socket.socket(fileno=descriptor)


def _sockets(pid: int) -> list[int]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if str(entry.readlink()).startswith("socket:"):
                found.append(int(entry.name))
        except OSError:  # closed meanwhile
            continue
    return found
