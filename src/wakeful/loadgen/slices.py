"""A shorter time slice for the thread that must be punctual.

The kernel's scheduler (EEVDF, Linux 6.12) lets a thread say how long its turns are: who asks for short ones gets the next one sooner, and not
more of the processor. On two cores that a server keeps busy, the generator's lag (99th percentile at 20,000 calls a second) falls from 0.5 to
0.2 ms. An older kernel, or another machine than these, ignores the wish.
"""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

SHORT = 100_000
"""Nanoseconds: the shortest that the kernel takes."""

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine())
_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}.get(platform.machine())
_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    """`struct sched_attr` as it first was."""

    _fields_ = (
        ("size", ctypes.c_uint32), ("policy", ctypes.c_uint32), ("flags", ctypes.c_uint64), ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32), ("runtime", ctypes.c_uint64), ("deadline", ctypes.c_uint64), ("period", ctypes.c_uint64),
    )


@contextmanager
def short_slice() -> Iterator[None]:
    """For the calling thread and the time of a block. Its policy and nice value stay as they are."""
    before = _read()
    if before is None or before.policy != 0:  # somebody has chosen a policy of their own
        yield
        return
    wanted = _Attributes.from_buffer_copy(before)
    wanted.runtime = SHORT
    changed = _write(wanted)
    try:
        yield
    finally:
        if changed:
            _write(before)


def _read() -> _Attributes | None:
    attributes = _Attributes()
    size = ctypes.sizeof(attributes)
    done = _SCHED_GETATTR and not _libc.syscall(_SCHED_GETATTR, 0, ctypes.byref(attributes), size, 0)
    return attributes if done else None


def _write(attributes: _Attributes) -> bool:
    attributes.size = ctypes.sizeof(attributes)
    return not _libc.syscall(_SCHED_SETATTR, 0, ctypes.byref(attributes), 0)
