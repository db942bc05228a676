"""Shared memory between the daemon and one replica: a few slots, each a memfd that both sides map.

A slot holds one run: inputs from its beginning, outputs behind them. Either side may make it longer, and it is sealed against being made
shorter, so that no process can take pages away under the other's feet. Pages that were never touched cost nothing.
"""

import fcntl
import mmap
import os

from wakeful.errors import Unavailable

ALIGN = 64
"""Bytes: a cache line, and the widest vector register."""
FIRST_SIZE = 256 * 1024
GROWTH = 1024 * 1024
KEEP = 4 * 1024 * 1024
"""A slot that grew beyond this gives its pages back when its replica has been idle for a while."""


def aligned(offset: int) -> int:
    return (offset + ALIGN - 1) & -ALIGN


class Slot:
    """One memfd and this process's mapping of it. Views handed out stay valid when the slot grows: an old mapping lives as long as its views."""

    __slots__ = ("_map", "fd", "size", "view")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._remap()

    @classmethod
    def create(cls) -> "Slot":
        """Raises Unavailable when no descriptors are left."""
        fd = -1
        try:
            fd = os.memfd_create("wakeful-slot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, FIRST_SIZE)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            return cls(fd)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            raise Unavailable(f"there is no room for another process: {error.strerror}") from None

    def _remap(self) -> None:
        size = os.fstat(self.fd).st_size
        self._map = mmap.mmap(self.fd, size)
        self.view = memoryview(self._map)
        self.size = size

    def reach(self, end: int) -> memoryview:
        """Return a view that holds at least `end` bytes, mapping anew what the other side has added and adding what is missing."""
        if end > self.size:
            if end > os.fstat(self.fd).st_size:
                os.ftruncate(self.fd, -(-max(end, 2 * self.size) // GROWTH) * GROWTH)
            self._remap()
        return self.view

    def written(self, end: int) -> memoryview:
        """Return a view of at least the first `end` bytes, which the other side has written. Raises ValueError if the slot does not go so far."""
        if end > self.size:
            if end > os.fstat(self.fd).st_size:
                raise ValueError(f"byte {end} is behind the end of the slot")
            self._remap()
        return self.view

    def mark(self, run: int) -> None:
        """Note which run has begun here. The file's offset serves no other purpose; both sides share it, and it outlives either of them."""
        os.lseek(self.fd, run, os.SEEK_SET)

    @property
    def marked(self) -> int:
        """The last run that was begun here."""
        return os.lseek(self.fd, 0, os.SEEK_CUR)

    @property
    def large(self) -> bool:
        return self.size > KEEP

    def trim(self) -> None:
        """Give the pages of a large slot back to the system, whoever has mapped them; the contents become zeros."""
        if self.large:
            self._map.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        os.close(self.fd)
        del self.view, self._map
