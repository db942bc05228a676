"""A replica: one process, one open model, one loop. Receive a message, do it, answer.

It has no thread of its own and needs none: it waits in `recv`, the daemon's death reaches it as a signal (see `nursery_main`), and between two
messages it may be forked.
"""

import gc
import os
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import msgspec

from wakeful.backends import catalog
from wakeful.backends.base import Backend, Elsewhere, LoadOptions
from wakeful.errors import ExecutionFailed, OutOfMemory, Unavailable, WakefulError
from wakeful.runtime.arena import Slot
from wakeful.runtime.channel import decoder, receive_descriptors
from wakeful.runtime.messages import (
    PACKET,
    TEXT_LIMIT,
    Compare,
    Done,
    Failed,
    Footprint,
    FromReplica,
    Hello,
    Load,
    Prepare,
    Prepared,
    Probe,
    Probed,
    Ready,
    Refused,
    Run,
    Split,
    Stop,
    ToReplica,
    Verdict,
    encode,
)
from wakeful.worker import arrays, comparison, elsewhere, family, printing, selftest, warming

OOM_SCORE = 600
"""Where the kernel must kill, it shall take a replica before the daemon (0) and before most other processes."""

QUIET_MS = 50
"""Exact measuring takes some 20 ms, so it waits for a pause of this length between two runs ..."""
MEASURE_SECONDS = 2.0
"""... but not longer than this."""
GROWN = 1.5
"""A run this many times larger than all before may have made the process grow for good."""
PAGE = os.sysconf("SC_PAGE_SIZE")
PID = struct.Struct("=i")
"""An entry of a nursery's roster."""

decode = decoder(ToReplica)


def serve(descriptors: Sequence[int], going_on: Load | None = None) -> NoReturn:
    """Be a replica until the channel ends. `descriptors`: the channel, the nursery's roster, then one memfd a slot. `going_on`: the order that made
    this replica go over to another interpreter, which is this one."""
    status = 1
    try:
        channel, roster, *slots = descriptors
        replica = Replica(socket.socket(fileno=channel), roster, [Slot(fd) for fd in slots])
        if going_on is None:
            replica.greet()
        else:
            replica.go_on(going_on)
        replica.loop()
        replica.close()
        status = 0
    except OSError:  # the channel broke: the daemon has let go of us
        pass
    finally:
        os._exit(status)  # never back into the code of the process that we were forked from


def anonymous_bytes() -> int:
    """Resident memory that no file backs, shared with the parent or not. Costs microseconds, where exact figures cost milliseconds."""
    with open("/proc/self/statm", encoding="ascii") as file:
        _, resident, shared, *_ = file.read().split()
    return (int(resident) - int(shared)) * PAGE


def private_bytes(pid: int | None = None) -> int:
    """Memory that is a process's alone, this one's if none is named. Clean private pages are the page cache's, which the kernel takes back when it
    needs them."""
    try:
        with open(f"/proc/{pid or 'self'}/smaps_rollup", encoding="ascii") as rollup:
            return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Private_Dirty:"))
    except (OSError, StopIteration):  # it has just ended
        return 0


def family_bytes() -> int:
    """What the processes hold that the model has started."""
    return sum(map(private_bytes, family.descendants()))


def mapped_bytes(directory: str) -> int:
    """Memory that is mapped from files in `directory`: a prepared copy's weights, which all replicas share."""
    total = 0
    inside = False
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as areas:
        for line in areas:
            first = line.split(maxsplit=5)
            if not first[0].endswith(":"):
                inside = len(first) > 5 and first[5].startswith(directory)
            elif inside and first[0] == "Rss:":
                total += int(first[1]) * 1024
    return total


def first_to_go() -> None:
    """Let the kernel take this process before the daemon. A container may have given all of its processes a higher score, which only a privileged one
    may lower, and which does as well."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
        if int(file.read()) < OOM_SCORE:
            file.write(str(OOM_SCORE))


def fault(error: BaseException, otherwise: type[WakefulError] = ExecutionFailed) -> WakefulError:
    """Any exception as one of ours, `otherwise` if it is none; the text is made what a channel takes."""
    if isinstance(error, MemoryError):
        error = OutOfMemory("out of memory in the model's process")
    if isinstance(error, OutOfMemory) and (limit := resource.getrlimit(resource.RLIMIT_DATA)[0]) != resource.RLIM_INFINITY:
        error.message += f"; worker_memory allows it {limit / 1024**2:.0f} MiB"
    trouble = error if isinstance(error, WakefulError) else otherwise(f"{type(error).__name__}: {error}")
    trouble.message = trouble.message[:TEXT_LIMIT].encode("utf-8", "backslashreplace").decode()
    return trouble


def packed(message: FromReplica, refusal: type[WakefulError]) -> bytes:
    """A message with names and shapes that a model has made up. Raises `refusal` where no channel takes it."""
    try:
        data = encode(message)
    except (UnicodeEncodeError, OverflowError) as error:
        raise refusal(f"a name or a size of the model's tensors cannot be told: {error}") from error
    if len(data) > PACKET:
        raise refusal(f"names and shapes of the model's tensors take {len(data)} bytes, and at most {PACKET} can be told")
    return data


class Replica:
    def __init__(self, channel: socket.socket, roster: int, slots: list[Slot]) -> None:
        self.channel = channel
        self.roster = roster
        """Pipe to the nursery, for the numbers of our copies."""
        self.slots = slots
        self.backend: Backend | None = None
        self.verdict = Verdict(False, "not tested yet", False)
        self.prepared = ""
        """Directory of the prepared copy that is open."""
        self.copied = False
        self.largest = 0
        """Bytes of the largest run that was measured."""
        self.measure_by = 0.0
        """Monotonic time by which the process has to be measured; 0 when it need not be."""
        self.anonymous_before = anonymous_bytes()
        self.moved = False
        """Is this another interpreter than the one that it was forked in?"""

    def greet(self) -> None:
        first_to_go()
        self.say(Hello(os.getpid()))

    def go_on(self, order: Load) -> None:
        """In another interpreter: all that it holds is this replica's."""
        self.moved, self.anonymous_before = True, 0
        self.load(order)

    def say(self, message: FromReplica) -> None:
        self.channel.send(encode(message))

    def loop(self) -> None:
        quiet = select.poll()
        quiet.register(self.channel, select.POLLIN)
        while True:
            if self.measure_by and (not quiet.poll(QUIET_MS) or time.monotonic() > self.measure_by):
                self.measure()
                continue
            data = self.channel.recv(PACKET)
            if not data:
                return
            order = decode(data)
            if isinstance(order, Run):
                self.run(order)
            elif isinstance(order, Load):
                self.load(order)
            elif isinstance(order, Probe):
                self.probe()
            elif isinstance(order, Split):
                self.split()
            elif isinstance(order, Prepare):
                self.prepare(order)
            elif isinstance(order, Compare):
                self.compare(order)
            elif isinstance(order, Stop):
                return

    def close(self) -> None:
        if self.backend is not None:
            self.backend.close()

    # ── orders ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, order: Load) -> None:
        try:
            options = LoadOptions(order.device, order.threads, order.prepared, self.moved)
            self.backend = catalog.module(order.backend).open_model(order.path, options)
            self.verdict = selftest.declared(self.backend.signature)
            warming.warm_up(self.backend, order.warmup)
            self.prepared = order.prepared if self.backend.prepared else ""
            ready = self.ready()
        except Elsewhere as wish:
            self.move(order, wish)
            return
        except Exception as error:  # noqa: BLE001 - native libraries raise whatever they like, and the daemon must hear of it
            trouble = fault(error, Unavailable)
            self.say(Refused(trouble.code, trouble.message))
            return
        self.channel.send(ready)

    def move(self, order: Load, wish: Elsewhere) -> None:
        """Go on in the interpreter that the model asks for. The process, what it may not do, its channel and its slots stay the same."""
        inherited = [self.channel.fileno(), self.roster, *(slot.fd for slot in self.slots)]
        for descriptor in inherited:
            os.set_inheritable(descriptor, True)
        command = [wish.python, "-u", "-B", elsewhere.__file__, msgspec.json.encode(order).decode(), *map(str, inherited)]
        try:
            os.execve(wish.python, command, {**os.environ, **wish.env})  # noqa: S606 - there is no shell to be deceived
        except OSError as error:
            self.say(Refused(Unavailable.code, f"the interpreter {wish.python} cannot be started: {error.strerror}"))

    def ready(self) -> bytes:
        """What is to be said of the model that is open. Raises Unavailable where that cannot be said."""
        assert self.backend is not None
        self.measure_by = time.monotonic() + MEASURE_SECONDS
        ready = Ready(
            self.backend.signature,
            self.verdict,
            self.added(),
            self.backend.forkable and only_thread(),
            self.backend.prepared,
            self.backend.device,
        )
        return packed(ready, Unavailable)

    def measure(self) -> None:
        """A copy holds what it has written to; an original all that it has added, though copies may share it. A draft is measured when it is none
        any more."""
        if self.backend is not None and self.backend.draft:
            self.backend.improve()
            self.measure_by = time.monotonic() + MEASURE_SECONDS
            return
        self.measure_by = 0.0
        own = private_bytes() + family_bytes() if self.copied else self.added()
        self.say(Footprint(own, mapped_bytes(self.prepared) if self.prepared else 0))

    def added(self) -> int:
        """Memory that the model has brought, about."""
        return max(anonymous_bytes() - self.anonymous_before, 0) + family_bytes()

    def probe(self) -> None:
        assert self.backend is not None
        self.backend.settle()
        with printing.hushed():
            try:
                self.verdict = selftest.probe(self.backend)
            except Exception as error:  # noqa: BLE001 - a model may fail in any way; then it is not merged
                self.verdict = Verdict(False, f"the self-test failed: {fault(error).message}", True)
            seconds = selftest.lone_seconds(self.backend)
        self.say(Probed(self.verdict, seconds))

    def prepare(self, order: Prepare) -> None:
        started = time.monotonic()
        try:
            catalog.module(order.backend).prepare(order.path, order.directory)
        except Exception as error:  # noqa: BLE001 - as in load
            trouble = fault(error)
            self.say(Refused(trouble.code, trouble.message))
            return
        with os.scandir(order.directory) as entries:
            nbytes = sum(entry.stat().st_size for entry in entries)
        self.say(Prepared(time.monotonic() - started, nbytes))

    def compare(self, order: Compare) -> None:
        try:
            with printing.hushed():
                compared = comparison.compare(order)
        except Exception as error:  # noqa: BLE001 - as in load
            trouble = fault(error)
            self.say(Refused(trouble.code, trouble.message))
            return
        self.say(compared)

    def run(self, order: Run) -> None:
        started = time.monotonic()
        slot = self.slots[order.slot]
        slot.mark(order.run)
        try:
            assert self.backend is not None
            view = slot.reach(order.end)
            backend = self.backend
            outputs = backend.run({placement.name: arrays.read(placement, view, binary=backend.binary) for placement in order.inputs})
            placements, end = arrays.layout(backend.outputs, outputs, order.end)
            arrays.fill(slot.reach(end), placements, outputs)
            done = packed(Done(order.run, time.monotonic() - started, placements), ExecutionFailed)
        except Exception as error:  # noqa: BLE001 - as in load
            trouble = fault(error)
            self.say(Failed(order.run, trouble.code, trouble.message))
            return
        self.channel.send(done)
        if self.backend.draft:
            self.backend.improve()
        if end > GROWN * self.largest:
            self.largest = end
            self.measure_by = self.measure_by or time.monotonic() + MEASURE_SECONDS

    def split(self) -> None:
        """Fork twice: the copy becomes an orphan, which the nursery, a subreaper, adopts."""
        safe = False
        if self.backend is not None:
            self.backend.settle()
            safe = self.backend.forkable and only_thread()
        _, descriptors = receive_descriptors(self.channel, len(self.slots) + 1)
        if safe:
            gc.freeze()
            middle = forked()
            if middle == 0:
                copy = os.fork()
                if copy == 0:
                    self.become_copy(descriptors)
                os.write(self.roster, PID.pack(copy))  # before our end makes it the nursery's child
                os._exit(0)
            if middle > 0:
                with suppress(ChildProcessError):  # a model that ignores SIGCHLD has the kernel reap
                    os.waitpid(middle, 0)
        for descriptor in descriptors:
            os.close(descriptor)

    def become_copy(self, descriptors: list[int]) -> NoReturn:
        status = 1
        try:
            self.channel.close()  # the original's end of file must mean the original's death
            for slot in self.slots:
                slot.close()
            copy = Replica(socket.socket(fileno=descriptors[0]), self.roster, [Slot(fd) for fd in descriptors[1:]])
            copy.backend, copy.verdict, copy.prepared, copy.copied = self.backend, self.verdict, self.prepared, True
            copy.greet()
            copy.channel.send(copy.ready())
            copy.loop()
            copy.close()
            status = 0
        except OSError:
            pass
        finally:
            os._exit(status)


def forked() -> int:
    """As `os.fork`; -1 when there is no room for another process, which is no reason for this one to end."""
    try:
        return os.fork()
    except OSError as error:
        sys.stderr.write(f"a copy could not be forked: {error.strerror}\n")
        sys.stderr.flush()
        return -1


def only_thread() -> bool:
    """True when this process has a single thread, so that a fork takes all of it along."""
    return len(os.listdir("/proc/self/task")) == 1
