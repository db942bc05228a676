"""How child processes end with the daemon, however it ends: see docs/decisions/02-lifeline.md."""

import fcntl
import os
import select
import signal


def tie_to_daemon(lifeline: int) -> None:
    """Let the kernel end this process group as soon as the other end of the pipe is gone, even one that stands still or handles signals."""
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(lifeline, 0)
    if poll.poll(0):  # it went before we were listening
        os._exit(0)
