"""The one source of time: a monotonic clock that tests can replace."""

import time
from collections.abc import Callable

Clock = Callable[[], float]

monotonic: Clock = time.monotonic
"""Seconds since an arbitrary start; a step of the wall clock does not move it."""

wall: Clock = time.time
"""Seconds since 1970, only for what people read."""
