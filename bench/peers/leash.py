"""Runs a command, and ends with it everything that it has started: daemons too, however they have detached themselves.

usage: python leash.py COMMAND [ARGUMENT...]

Whatever loses its parent becomes a child of this process (it is their subreaper), so all of a peer is one tree. SIGTERM is passed on to the
command, which has a while to end; then all that is left is killed. The same happens if the bench itself ends, in whatever way.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PATIENCE_SECONDS = 10.0
"""For the command to end by itself. Less than the bench waits for this process."""
LOOK_SECONDS = 0.5
SET_PARENT_DEATH_SIGNAL, SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def main(command: Sequence[str]) -> int:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    awaited = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        child = os.posix_spawnp(command[0], list(command), os.environ, setsigmask=())
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return 127
    try:
        return follow(child, awaited)
    finally:
        end_all()


def follow(child: int, awaited: set[signal.Signals]) -> int:
    """Wait for the command to end, and give its status. Orphans that end meanwhile are reaped."""
    deadline = float("inf")
    while True:
        heard = signal.sigtimedwait(awaited, LOOK_SECONDS)
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                return os.waitstatus_to_exitcode(ended[1])
        if heard and heard.si_signo != signal.SIGCHLD and deadline == float("inf"):
            deadline = time.monotonic() + PATIENCE_SECONDS
            os.kill(child, signal.SIGTERM)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)


def end_all() -> None:
    """Kill children until there are none; those of a killed one come here and are next."""
    while True:
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children() -> list[int]:
    mine, found = str(os.getpid()), []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            if fields[1] == mine:
                found.append(int(entry))
    return found


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.exit(status if status >= 0 else 128 - status)
