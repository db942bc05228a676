"""The daemon's side of a nursery: starts it, asks it for replicas, learns how they died, and starts another one when it dies itself."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Container, Sequence
from contextlib import ExitStack
from typing import Protocol

import msgspec

from wakeful.errors import Unavailable
from wakeful.runtime import channel
from wakeful.runtime.arena import Slot
from wakeful.runtime.channel import Channel
from wakeful.runtime.messages import CONFINED, Awake, Broken, Confinement, Exited, Fork, Forked, ForkFailed, FromNursery

RESTART_SECONDS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
LOOK_SECONDS = 1.0
"""Between two looks at a nursery that has something to do. Looks are counted, not seconds: a daemon that was stopped itself blames nobody for it."""
IDLE_LOOKS = 5
"""Looks without any progress, though a fork takes milliseconds, after which it is taken for stuck: another one costs half a second."""
WAKING_LOOKS = 30
"""The same while it imports its library, which may come from a slow disk."""
QUIET_LIBRARIES = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Libraries must start no threads of their own in a process that will fork."""
OUTPUT_CHUNK, OUTPUT_PAUSE = 16 * 1024, 0.1
"""Bytes that are read at once of what is printed, and the seconds until more is read after so many."""
SLOTS = 2
"""One slot is collated, or answered from, while the other one runs."""


class Observer(Protocol):
    """What the owner of a nursery wants to know."""

    def nursery_awake(self, message: Awake) -> None: ...

    def nursery_lost(self, pid: int, reason: str) -> None:
        """`pid` is 0 when there was no process: it could not be started. Another one is on its way."""

    def nursery_broken(self, reason: str) -> None:
        """Its library does not import. It is tried again when somebody asks for a replica."""

    def replica_exited(self, pid: int, status: int) -> None: ...

    def fork_failed(self, replica: int, reason: str) -> None: ...

    def replica_output(self, line: str) -> None: ...


class Nursery:
    """One nursery process at a time. Descriptors of earlier ones' lifelines stay open as long as their replicas live on."""

    def __init__(self, backend: str, observer: Observer, confinement: Confinement = CONFINED, hidden: Container[str] = ()) -> None:
        self.backend = backend
        self._hidden = hidden
        self._confinement = msgspec.json.encode(confinement).decode()
        self.broken = ""
        """Why no replica can be forked at all, by the latest process that came to an end with its imports; empty while that works."""
        self._observer = observer
        self._lifelines: dict[int, int] = {}
        """Process group to the end of its pipe that we hold."""
        self._failures = 0
        self._pause_ends = 0.0
        """When a broken one may be tried again, on the loop's clock."""
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel[FromNursery] | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._awake = False
        self._owed: set[int] = set()
        """Replicas that the process was told to fork and has not."""
        self._looks = 0
        """Looks at the process since it last got on."""
        self._look_timer: asyncio.TimerHandle | None = None
        self._stuck = ""
        self._decode = channel.decoder(FromNursery)

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start the process. Orders may be given at once; they wait in the channel until it has imported its library."""
        try:
            self._begin()
        except (OSError, Unavailable) as error:  # no descriptors, no processes or no memory are left
            self._process = None
            self._observer.nursery_lost(0, f"it could not be started: {error}")
            self._start_later()

    def _begin(self) -> None:
        with ExitStack() as ours, ExitStack() as theirs:
            here, there = channel.pair()
            ours.callback(here.close)
            theirs.callback(there.close)
            lifeline, held = _pipe(theirs, ours)
            output, output_writer = _pipe(ours, theirs)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "wakeful.worker.nursery_main", str(there.fileno()), str(lifeline), self.backend, self._confinement],
                stdin=subprocess.DEVNULL,
                stdout=output_writer,
                stderr=output_writer,
                pass_fds=(there.fileno(), lifeline),
                env=QUIET_LIBRARIES | {name: value for name, value in os.environ.items() if name not in self._hidden},
                start_new_session=True,
            )
            ours.pop_all()
        self._lifelines[self._process.pid] = held
        self._read_output(output)
        self._channel = Channel(here, self._decode, self._told, self._lost)
        self._awake, self._stuck = False, ""
        self._owed.clear()
        self._watch()

    def fork(self, replica: int, slots: Sequence[Slot], nice: int, on_socket: Callable[[socket.socket], None]) -> None:
        """Ask for a replica; its channel is handed to `on_socket` at once. If the nursery dies before it forks, that channel ends.

        Raises Unavailable where its library does not import.
        """
        if self.broken and self._channel is None and not self._try_again():
            raise Unavailable(self.broken)
        ours, theirs = channel.pair()
        if self._channel is not None:
            self._channel.send(Fork(replica, nice), [theirs.fileno(), *(slot.fd for slot in slots)])
            self._owed.add(replica)
            if self._look_timer is None:
                self._watch()
        theirs.close()
        on_socket(ours)

    def stop(self) -> None:
        """Let go of the nursery; it ends at the end of its channel."""
        self._stopping = True
        for timer in (self._restart, self._look_timer):
            if timer is not None:
                timer.cancel()
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            try:
                self._process.wait(1)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _told(self, message: FromNursery) -> None:
        self._looks = 0
        if isinstance(message, Exited):
            self._observer.replica_exited(message.pid, message.status)
        elif isinstance(message, Forked):
            self._owed.discard(message.replica)
        elif isinstance(message, ForkFailed):
            self._owed.discard(message.replica)
            self._observer.fork_failed(message.replica, message.reason)
        elif isinstance(message, Awake):
            self._awake = True
            self._failures = 0
            self.broken = ""
            self._observer.nursery_awake(message)
        elif isinstance(message, Broken):
            if message.reason != self.broken:
                self._observer.nursery_broken(message.reason)
            self.broken = message.reason

    def _let_go(self) -> None:
        """Close the lifelines at which nobody hangs any more."""
        for group, lifeline in list(self._lifelines.items()):
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                os.close(lifeline)
                del self._lifelines[group]
            except PermissionError:  # the number is somebody else's by now; a later look will tell
                continue

    def _watch(self) -> None:
        """Begin to look whether the process gets on with what it has to do."""
        self._looks = 0
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._look_timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """End a process that hangs; its channel tells, and another one takes its place."""
        self._look_timer = None
        if self._channel is None or (self._awake and not self._owed):
            return
        self._looks += 1
        if self._looks > (IDLE_LOOKS if self._awake else WAKING_LOOKS):
            self._stuck = "it hung: " + ("it was told to fork and did not" if self._awake else "it never came to the end of its imports")
            if self._process is not None:
                self._process.kill()
            return
        self._look_timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _lost(self) -> None:
        fault = f"it {self._channel.fault}" if self._channel is not None and self._channel.fault else ""
        self._channel = None
        assert self._process is not None
        self._process.kill()  # a closed channel ends it anyway; this makes the wait short
        status = self._process.wait()
        self._let_go()
        if self._stopping:
            return
        if self.broken:
            return
        reason = self._stuck or fault or (f"killed by signal {-status}" if status < 0 else f"exit status {status}")
        self._observer.nursery_lost(self.pid, reason)
        self._start_later()

    def _start_later(self) -> None:
        self._restart = asyncio.get_running_loop().call_later(self._next_pause(), self.start)

    def _try_again(self) -> bool:
        """Somebody may have installed what was missing: start a process, if the last one was not a moment ago."""
        now = asyncio.get_running_loop().time()
        if now < self._pause_ends:
            return False
        self._pause_ends = now + self._next_pause()
        self.start()
        return True

    def _next_pause(self) -> float:
        self._failures += 1
        return RESTART_SECONDS[min(self._failures, len(RESTART_SECONDS)) - 1]

    def _read_output(self, fd: int) -> None:
        """Pass on what native libraries and user code print, line by line; a pipe that nobody reads would block them. Who prints without end is read
        slowly: nobody else shall wait for that."""
        loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        rest = b""

        def readable() -> None:
            nonlocal rest
            try:
                data = os.read(fd, OUTPUT_CHUNK)
            except BlockingIOError:
                return
            if not data:
                loop.remove_reader(fd)
                os.close(fd)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._observer.replica_output(line.decode("utf-8", "replace"))
            rest = rest[-4096:]
            if len(data) == OUTPUT_CHUNK:
                loop.remove_reader(fd)
                loop.call_later(OUTPUT_PAUSE, loop.add_reader, fd, readable)

        loop.add_reader(fd, readable)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe of which each end closes with its stack."""
    ends = os.pipe()
    for end, stack in zip(ends, (reader, writer), strict=True):
        stack.callback(os.close, end)
    return ends
