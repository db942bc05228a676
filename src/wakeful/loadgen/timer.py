"""A timer that epoll can wait for. epoll's own timeout has whole milliseconds: at a thousand calls a second that is a call's whole distance.

Python's own binding of timerfd begins with 3.13.
"""

import ctypes
import os
import time

_TFD_NONBLOCK, _TFD_CLOEXEC, _TFD_TIMER_ABSTIME = os.O_NONBLOCK, os.O_CLOEXEC, 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


_libc = ctypes.CDLL(None, use_errno=True)
_settime = _libc.timerfd_settime
_settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Setting), ctypes.c_void_p)


class Timer:
    """Its descriptor becomes readable at the moment that was set, once. To be watched edge-triggered: nobody reads it."""

    def __init__(self) -> None:
        self.fd: int = _libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self.fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._setting = _Setting()
        self._pointer = ctypes.pointer(self._setting)

    def set(self, moment: float) -> None:
        """`moment` is of `time.monotonic`; one that has passed fires at once."""
        value = self._setting.value
        value.seconds = seconds = int(moment)
        value.nanoseconds = int((moment - seconds) * 1e9) or (not seconds)  # all zero would disarm
        _settime(self.fd, _TFD_TIMER_ABSTIME, self._pointer, None)

    def close(self) -> None:
        os.close(self.fd)
