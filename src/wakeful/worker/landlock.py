"""A view of the file system of a process's own, by the kernel's Landlock (Linux 5.13): what it may read, and what it may write."""

import ctypes
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same on all processors
_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Version of Landlock to the number of rights on files that it knows."""
_NET, _SCOPES = 0b11, 0b11
"""TCP, since version 4; sockets and signals beyond the own processes, since 6."""

_libc = ctypes.CDLL(None, use_errno=True)


def restrict(readable: Iterable[Path], writable: Iterable[Path]) -> None:
    """Nothing but these files, and what lies in these directories, from now on, for this process and all that it starts. What is writable is
    readable; what does not exist is passed over. New privileges must have been given up. Raises OSError where the kernel has no Landlock."""
    version = _called(_CREATE, None, 0, _VERSION)
    handled = (1 << _RIGHTS[min(version, 5)]) - 1
    rules = struct.pack("=QQQ", handled, _NET, _SCOPES)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _called(_CREATE, rules, len(rules), 0)
    try:
        for paths, rights in ((readable, _READ), (writable, handled)):
            for path in paths:
                with suppress(FileNotFoundError, NotADirectoryError):
                    _allow(ruleset, path, rights)
        _called(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights if path.is_dir() else rights & _OF_FILES, descriptor)
        _called(_ADD, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)


def _called(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
