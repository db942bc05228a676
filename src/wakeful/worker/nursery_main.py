"""A nursery: a warm process that has imported a backend's library, holds no session, and forks replicas.

Started as `python -m wakeful.worker.nursery_main CONTROL LIFELINE BACKEND CONFINEMENT`, where CONTROL and LIFELINE are inherited descriptors and
CONFINEMENT is a `messages.Confinement` as JSON. It leads a process
group of its own, which all its replicas share. LIFELINE is the reading end of a pipe whose other end only the daemon holds: when the daemon ends,
however it ends, the kernel signals the whole group, even a replica that is deep inside a run.
"""

import gc
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress

import msgspec

from wakeful.backends import catalog
from wakeful.errors import WakefulError
from wakeful.runtime.channel import receive_descriptors
from wakeful.runtime.lifeline import tie_to_daemon
from wakeful.runtime.messages import TEXT_LIMIT, Awake, Broken, Confinement, Exited, Fork, Forked, ForkFailed, encode
from wakeful.runtime.subreaper import become_subreaper
from wakeful.worker import family, loop
from wakeful.worker.confinement import confine

MAX_DESCRIPTORS = 8


class Nursery:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.wake_reader, self.wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.roster_reader, self.roster_writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.roster_reader, False)
        self.kin: set[int] = set()
        """Replicas that live: our children and, by what they write into the roster, the copies that they make. All others are what a model has
        started and left behind."""

    def serve(self) -> None:
        signal.set_wakeup_fd(self.wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the wake-up pipe is written
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.wake_reader, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.wake_reader:
                    os.read(self.wake_reader, 4096)
                    self.reap()
                else:
                    self.take_order()

    def reap(self) -> None:
        with suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                self.read_roster()
                self.kin.discard(reaped[0])
                self.control.send(encode(Exited(*reaped)))
        children = family.children()
        self.read_roster()  # after the look: what is a child of ours by now has been entered before
        for orphan in set(children) - self.kin:
            with suppress(PermissionError):  # it has gained rights, where models may
                os.kill(orphan, signal.SIGKILL)

    def read_roster(self) -> None:
        with suppress(BlockingIOError):
            while True:
                self.kin.update(pid for pid, in loop.PID.iter_unpack(os.read(self.roster_reader, 1024 * loop.PID.size)))

    def take_order(self) -> None:
        data, descriptors = receive_descriptors(self.control, MAX_DESCRIPTORS)
        if not data:
            os._exit(0)
        order = msgspec.msgpack.decode(data, type=Fork)
        try:
            pid = os.fork()
        except OSError as error:
            self.control.send(encode(ForkFailed(order.replica, error.strerror or str(error))))
            pid = -1
        if pid == 0:
            self.become_replica(order, descriptors)
        if pid > 0:
            self.kin.add(pid)
            self.control.send(encode(Forked(order.replica)))
        for descriptor in descriptors:
            os.close(descriptor)

    def become_replica(self, order: Fork, descriptors: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.control.close()
        os.close(self.wake_reader)
        os.close(self.wake_writer)
        os.close(self.roster_reader)
        if order.nice:
            os.nice(order.nice)
        loop.serve([descriptors[0], self.roster_writer, *descriptors[1:]])


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    tie_to_daemon(int(sys.argv[2]))
    become_subreaper()  # of the copies that replicas fork twice
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kept = confine(msgspec.json.decode(sys.argv[4], type=Confinement))
    try:
        library = catalog.warm(sys.argv[3])
    except Exception as error:  # noqa: BLE001 - whatever an import can raise is the daemon's to report
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, WakefulError):
            reason = error.message
        else:
            traceback.print_exc()
        control.send(encode(Broken(reason[:TEXT_LIMIT])))
        sys.exit(1)
    gc.collect()
    gc.freeze()  # a full collection in a child would touch, and so copy, every shared page
    control.send(encode(Awake(os.getpid(), library.name, library.providers, kept)))
    Nursery(control).serve()


if __name__ == "__main__":
    main()
