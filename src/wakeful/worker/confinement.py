"""What a nursery, and with it every replica, gives up before it opens a model: a file from a stranger is parsed by native code there."""

import ctypes
import errno
import os
import resource
from collections.abc import Callable

from wakeful.runtime.messages import Confinement

_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def confine(wanted: Confinement) -> tuple[str, ...]:
    """Give up what is not allowed. Returns what had to be kept, and why. Call it while the process has one thread."""
    kept = []
    for allowed, what, give_up in (
        (wanted.new_privileges, "new privileges, as with worker_new_privileges", _no_new_privileges),
        (wanted.network, "the network, as with worker_network", _no_network),
        (wanted.core_dumps, "core dumps, as with worker_core_dumps", _no_core_dumps),
        (wanted.largest_file is None, "files of any size", lambda: _limit(resource.RLIMIT_FSIZE, wanted.largest_file or 0)),
        (wanted.memory is None, "memory of any size", lambda: _limit(resource.RLIMIT_DATA, wanted.memory or 0)),
    ):
        if not allowed and (problem := _tried(give_up)):
            kept.append(f"{what} ({problem})")
    return tuple(kept)


def _tried(give_up: Callable[[], None]) -> str:
    try:
        give_up()
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _no_new_privileges() -> None:
    """No program that it starts may have more rights than it has: set-user-id bits do not count."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _no_network() -> None:
    """A network of its own, in which there is nothing. Others than root may have it only in a user namespace of their own, where their id means
    the same; root would lose rights to files there."""
    if _libc.unshare(_CLONE_NEWNET) == 0:
        return
    if os.geteuid() == 0:
        _check(-1)
    if _in_child(_leave_for_own_namespaces) != 0:  # halfway in, there is no way back
        raise OSError(ctypes.get_errno() or errno.EPERM, "the kernel allows no user namespace")
    _leave_for_own_namespaces()


def _leave_for_own_namespaces() -> None:
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET))
    for name, text in (("setgroups", b"deny"), ("uid_map", b"%d %d 1" % (user, user)), ("gid_map", b"%d %d 1" % (group, group))):
        with open(f"/proc/self/{name}", "wb") as file:
            file.write(text)


def _in_child(do: Callable[[], None]) -> int:
    """Its exit status: 0 if `do` went well."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            do()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _no_core_dumps() -> None:
    """Neither into a file nor into a program that collects them."""
    _limit(resource.RLIMIT_CORE, 0)
    with open("/proc/self/coredump_filter", "wb") as file:
        file.write(b"0")


def _limit(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
