"""What the doctor looks at: this machine, this process and the configuration, read once. The checks themselves are in `doctor`."""

import os
import platform
import resource
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from wakeful import __version__, clock
from wakeful.config.kinds import KINDS, library_of
from wakeful.config.problems import Problem
from wakeful.config.settings import Settings
from wakeful.memory.budget import PROC, GroupKill, Memory, cpu_quota, group_kill, read_memory, resolve_budget

BROKERS = {"redis": "redis", "rabbitmq": "aio-pika", "kafka": "aiokafka"}
"""The distribution that each kind of [[streams]] needs; the extra is called as the broker."""


class Missing(NamedTuple):
    """Something that is configured and whose library is not installed."""

    what: str
    extra: str
    """Of Wakeful, which brings it."""


class Place(NamedTuple):
    """Where prepared copies are kept."""

    directory: Path
    kind: str
    """Of the file system, such as "ext4"; empty where it cannot be found out."""
    writable: bool
    free: int
    """Bytes."""
    limit: int
    """Bytes that all copies together may take."""


class Readings(NamedTuple):
    version: str
    python: str
    system: str
    kernel: str
    memfd: bool
    pidfd: bool
    machine: Memory
    budget: int | None
    """Bytes for models; None: the configuration is wrong."""
    cores: int
    """That this process may run on."""
    machine_cores: int
    quota: float | None
    """Cores that a control group grants; None: no quota."""
    group_kill: GroupKill | None
    overcommit: int | None
    """vm.overcommit_memory; None where it cannot be read."""
    cache: Place | None
    files: int
    """Open files that may be asked for."""
    libraries: tuple[str, ...]
    """Names and versions, those of backends that are in use first."""
    missing: tuple[Missing, ...]
    problems: tuple[Problem, ...]
    """Of the configuration: errors, or else warnings."""
    time: float
    """Seconds since 1970, by the wall clock."""


def take(settings: Settings | None, problems: Iterable[Problem] = (), find_group_kill: Callable[[], GroupKill | None] = group_kill) -> Readings:
    """Read all of it. `settings`: None where the configuration is wrong, as `problems` say. Blocks for some milliseconds, two seconds at most."""
    machine = read_memory()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return Readings(
        version=__version__,
        python=platform.python_version(),
        system=platform.system(),
        kernel=platform.release(),
        memfd=_has_memfd(),
        pidfd=_has_pidfd(),
        machine=machine,
        budget=None if settings is None else resolve_budget(settings.memory.limit, machine),
        cores=len(os.sched_getaffinity(0)),
        machine_cores=os.cpu_count() or 1,
        quota=cpu_quota(),
        group_kill=find_group_kill(),
        overcommit=_number(PROC / "sys" / "vm" / "overcommit_memory"),
        cache=None if settings is None else place_of(settings.cache.directory, settings.cache.limit),
        files=1 << 30 if hard == resource.RLIM_INFINITY else hard,
        libraries=_libraries(settings),
        missing=() if settings is None else tuple(_missing(settings)),
        problems=tuple(problems) if settings is None else settings.warnings,
        time=clock.wall(),
    )


def place_of(directory: Path, limit: int, proc_root: Path = PROC) -> Place:
    """What can be said of a directory, or of where it would be made."""
    there = directory.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    free = 0
    with suppress(OSError):
        stat = os.statvfs(there)
        free = stat.f_bavail * stat.f_frsize
    return Place(directory, _file_system(there, proc_root), os.access(there, os.W_OK | os.X_OK), free, limit)


def _file_system(directory: Path, proc_root: Path) -> str:
    """Kind of the innermost mount above a directory: the last one that is named for it, as later mounts hide earlier ones."""
    depth, kind = -1, ""
    try:
        lines = (proc_root / "self" / "mountinfo").read_text("utf-8", "surrogateescape").splitlines()
        resolved = directory.resolve()
    except OSError:
        return ""
    for line in lines:
        left, _, right = line.partition(" - ")
        words = left.split()
        if len(words) < 5 or not right:
            continue
        point = Path(words[4].replace("\\040", " "))
        if resolved.is_relative_to(point) and len(point.parts) >= depth:
            depth, kind = len(point.parts), right.split()[0]
    return kind


def _has_memfd() -> bool:
    try:
        os.close(os.memfd_create("wakeful-doctor", os.MFD_CLOEXEC))
    except (AttributeError, OSError):
        return False
    return True


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _libraries(settings: Settings | None) -> tuple[str, ...]:
    used = {"onnx"} if settings is None else {settings.defaults.backend} | {model.backend for model in settings.models}
    names = [library_of(backend) for backend in KINDS if backend in used]
    names += [f"{name} {metadata.version(name)}" for name in ("numpy", "uvloop", "grpcio")]
    return tuple(dict.fromkeys(name for name in names if name != "missing"))


def _missing(settings: Settings) -> Iterable[Missing]:
    extras = set(metadata.metadata("wakeful").get_all("Provides-Extra") or ())
    for backend in sorted({model.backend for model in settings.models}):
        if library_of(backend) == "missing":
            ids = [model.id for model in settings.models if model.backend == backend]
            yield Missing(f"backend {backend}, for {', '.join(dict.fromkeys(ids))}", backend if backend in extras else "")
    for stream in settings.streams:
        try:
            metadata.version(BROKERS[stream.broker])
        except metadata.PackageNotFoundError:
            yield Missing(f"{BROKERS[stream.broker]}, for the stream {stream.name}", stream.broker)
