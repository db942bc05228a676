"""Sending calls: at their moments however late the server is (open loop), or the next one when the last is answered (closed loop).

A closed loop shows what a server can do; it hides a stall, because nobody sends while the server stands still. In an open loop latency counts
from the moment at which a call was due, so a stall is in the latency of every call that fell into it.

Neither waits for ever, and Ctrl-C ends a run with what was measured. The garbage collector rests meanwhile.
"""

import gc
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import nan
from time import thread_time

import numpy as np

from wakeful.clock import monotonic
from wakeful.loadgen.calls import Call
from wakeful.loadgen.results import Results
from wakeful.loadgen.slices import short_slice
from wakeful.loadgen.wires import LOOK, Wire, Wires

Progress = Callable[[float], None]
"""Called several times a second with the share that is done, 0 to 1."""

REST = 0.1
"""Seconds before a closed loop tries again after a connection that failed."""
AHEAD = 0.005
"""Seconds between the beginning of an open loop's work and its first moment."""


def closed(
    address: tuple[str, int], calls: Sequence[Call], *, connections: int, seconds: float, warmup: float = 0.0, most: int | None = None,
    order: Sequence[int] | None = None, timeout: float = 30.0, progress: Progress | None = None,
) -> Results:
    """`connections` callers, each of whom sends when it has its answer. Calls are taken in turn, or by `order` (index into calls), again and
    again; at most `most` of them."""
    wires = Wires(address, calls, timeout)
    try:
        return _Closed(wires, _order(order, calls), connections, (warmup, seconds), most).run(progress)
    finally:
        wires.close()


def open_loop(
    address: tuple[str, int], calls: Sequence[Call], arrivals: Sequence[float], *, connections: int = 256, order: Sequence[int] | None = None,
    timeout: float = 30.0, progress: Progress | None = None,
) -> Results:
    """A call at each of `arrivals` (seconds from the beginning, ascending). Calls are taken in turn, or by `order`: an index into calls for
    each arrival, taken again from its beginning where it is shorter.

    Connections are opened as they are needed. Where `connections` are all in use, calls wait, and their latency counts all the same; so does
    `timeout`, from the moment at which a call is due.
    """
    wires = Wires(address, calls, timeout)
    try:
        with short_slice():
            return _Open(wires, _order(order, calls), connections, array("d", arrivals), timeout).run(progress)
    finally:
        wires.close()


def _order(order: Sequence[int] | None, calls: Sequence[Call]) -> "array[int]":
    return array("l", range(len(calls)) if order is None else order)


@contextmanager
def _no_collection() -> Iterator[None]:
    """A collection would be a pause of the generator that looks like one of the server."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Run:
    """What both loops have in common: columns that grow with each answer, a look at the clock ten times a second, an end by Ctrl-C."""

    def __init__(self, wires: Wires, order: Sequence[int], connections: int) -> None:
        if connections < 1:
            raise ValueError("without a connection no call can be sent")
        self._wires = wires
        wires.done = self._done
        self._order, self._next = order, 0
        self._connections = connections
        self._begin = 0.0
        """The moment from which `start` counts."""
        self._start, self._took, self._status, self._call = array("d"), array("d"), array("h"), array("l")
        self._lags = array("d")
        self._cpu = [0.0, 0.0]
        """The thread's CPU seconds at the beginning and at the end of what is measured."""

    def run(self, progress: Progress | None) -> Results:
        interrupted = False
        with _no_collection():
            try:
                self._drive(progress or _unseen)
            except KeyboardInterrupt:
                interrupted = True
                self._cpu[1] = thread_time()
        now = monotonic()
        count = len(self._call)  # the column that is written last: Ctrl-C may have come between two
        start, took, status, call = (np.array(column[:count], column.typecode) for column in (self._start, self._took, self._status, self._call))
        order = np.argsort(start, kind="stable")
        under_way = [now - wire.start for wire in self._wires.wires.values() if wire.call >= 0]
        return Results(
            array("d", start[order].tobytes()), array("d", took[order].tobytes()), array("h", status[order].tobytes()),
            array("l", call[order].tobytes()), wall=max(self._wall(now, interrupted), 0.0), cpu=max(self._cpu[1] - self._cpu[0], 0.0),
            lag=float(np.percentile(np.array(self._lags), 99)) if self._lags else 0.0,
            errors=dict(self._wires.errors), interrupted=interrupted, under_way=len(under_way), oldest=max(under_way, default=0.0),
        )

    def _record(self, start: float, seconds: float, status: int, call: int) -> None:
        self._start.append(start - self._begin)
        self._took.append(seconds)
        self._status.append(status)
        self._call.append(call)

    def _drive(self, progress: Progress) -> None:
        raise NotImplementedError

    def _done(self, wire: Wire, call: int, status: int, now: float) -> None:
        raise NotImplementedError

    def _wall(self, now: float, interrupted: bool) -> float:
        raise NotImplementedError


class _Closed(_Run):
    def __init__(self, wires: Wires, order: Sequence[int], connections: int, times: tuple[float, float], most: int | None) -> None:
        super().__init__(wires, order, connections)
        self._warmup, self._seconds = times
        self._most = most if most is not None else 1 << 62
        self._end = 0.0
        self._resting: list[float] = []
        """For each connection that failed: when another is tried in its place."""

    def _drive(self, progress: Progress) -> None:
        wires = self._wires
        began = now = monotonic()
        self._begin = began + self._warmup
        self._end = self._begin + self._seconds
        look = began
        for _ in range(min(self._connections, self._most)):
            self._send(wires.connect(), monotonic())
        while wires.wires or (now < self._end and self._next < self._most):
            wires.turn(max(look - now, 0.0))
            now = monotonic()
            if now >= look:
                look = self._look(now)
                progress(min((now - began) / (self._end - began), 1.0))
        if now < self._end:
            self._cpu[1] = thread_time()

    def _look(self, now: float) -> float:
        """Returns the moment of the next look: no later than that at which CPU time is to be read."""
        wires = self._wires
        wires.look(now)
        if now < self._end:
            if now < self._begin or not self._cpu[0]:
                self._cpu[0] = thread_time()
            while self._resting and self._resting[0] <= now and self._next < self._most:
                self._resting.pop(0)
                self._send(wires.connect(), now)
        elif not self._cpu[1]:
            self._cpu[1] = thread_time()
        return min(moment for moment in (self._begin, self._end, now + LOOK) if moment > now)

    def _done(self, wire: Wire, call: int, status: int, now: float) -> None:
        if now >= self._begin:  # neither _record nor, below, _send: this runs once for every answer
            start = wire.start
            self._start.append(start - self._begin)
            self._took.append(now - start if status else nan)
            self._status.append(status)
            self._call.append(call)
        if now >= self._end or self._next >= self._most:
            self._wires.drop(wire)
        elif wire.open:
            order, place = self._order, self._next
            self._next = place + 1
            self._wires.begin(wire, order[place % len(order)], now)
        elif status:
            self._send(self._wires.connect(), now)
        else:
            self._resting.append(now + REST)

    def _send(self, wire: Wire, now: float) -> None:
        order = self._order
        call = order[self._next % len(order)]
        self._next += 1
        self._wires.begin(wire, call, now)

    def _wall(self, now: float, interrupted: bool) -> float:
        return min(now, self._end) - self._begin


class _Open(_Run):
    def __init__(self, wires: Wires, order: Sequence[int], connections: int, arrivals: Sequence[float], timeout: float) -> None:
        super().__init__(wires, order, connections)
        self._arrivals = arrivals
        self._timeout = timeout
        self._free: list[Wire] = []
        """The one that was used last is used next: no more are kept busy than the load needs."""
        self._flying = 0
        self._blocked = False
        """A call is due and all connections are in use."""
        self._unblocked = 0.0

    def _drive(self, progress: Progress) -> None:
        wires, arrivals, count = self._wires, self._arrivals, len(self._arrivals)
        self._cpu[0] = thread_time()
        self._begin = monotonic() + AHEAD
        look, armed = self._begin, -1
        while True:
            now = monotonic()
            self._send_due(now)
            if self._next == count and not self._flying:
                break
            if armed != self._next < count and not self._blocked:
                armed = self._next
                wires.timer.set(self._begin + arrivals[armed])
            if now >= look:
                look = now + LOOK
                wires.look(now)
                progress(min((now - self._begin) / (arrivals[-1] or 1.0), 1.0))
            wires.turn(max(look - now, 0.0))
        self._cpu[1] = thread_time()

    def _send_due(self, now: float) -> None:
        arrivals, order, free = self._arrivals, self._order, self._free
        while self._next < len(arrivals) and (moment := self._begin + arrivals[self._next]) <= now:
            call = order[self._next % len(order)]
            if now - moment > self._timeout:
                self._next += 1
                self._wires.errors.setdefault(0, f"not sent within {self._timeout:g} s: every connection was in use")
                self._record(moment, nan, 0, call)
                continue
            wire = free.pop() if free else self._another()
            if wire is None:
                self._blocked = True
                return
            if not wire.open:  # the server has closed it meanwhile
                continue
            self._next += 1
            self._flying += 1
            self._lags.append(now - max(moment, self._unblocked))
            self._wires.begin(wire, call, moment)
            now = monotonic()

    def _another(self) -> Wire | None:
        open_now = len(self._wires.wires)
        if open_now >= self._connections:
            return None
        try:
            return self._wires.connect()
        except OSError:
            if not open_now:
                raise
            self._connections = open_now  # as many as this process may have
            return None

    def _done(self, wire: Wire, call: int, status: int, now: float) -> None:
        self._flying -= 1
        self._record(wire.start, now - wire.start if status else nan, status, call)
        if wire.open:
            self._free.append(wire)
        if self._blocked:
            self._blocked = False
            self._unblocked = now

    def _wall(self, now: float, interrupted: bool) -> float:
        if interrupted or not self._arrivals:
            return now - self._begin
        ends = np.frombuffer(self._start) + np.frombuffer(self._took)
        return max(float(self._arrivals[-1]), float(np.nanmax(ends, initial=0.0)))


def _unseen(share: float) -> None:
    """Nobody watches."""
