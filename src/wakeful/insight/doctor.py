"""Can this machine do it? Pure functions of what was read: each says in words how a thing is, and what to do where it is not as it should be."""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from wakeful.insight.readings import Readings
from wakeful.telemetry.units import show_bytes

Level = Literal["ok", "warn", "fail"]

IN_MEMORY = ("tmpfs", "ramfs")
"""File systems whose files are memory of our own."""
FEW_FILES = 4096
LITTLE_ROOM = 1 << 30
"""Bytes: a prepared copy is as large as its model."""
BUILT = 1_767_225_600
"""2026-01-01: no clock that is right says less."""
NEVER_OVERCOMMIT = 2


class Check(NamedTuple):
    level: Level
    name: str
    text: str
    hint: str | None = None


def examine(readings: Readings) -> list[Check]:
    """All checks, in the order in which people read them."""
    return [
        kernel(readings), *memory(readings), cores(readings), out_of_memory(readings), *cache(readings), files(readings), *libraries(readings),
        *configuration(readings), clock(readings),
    ]


def failed(checks: Iterable[Check]) -> bool:
    """Is the answer no?"""
    return any(check.level == "fail" for check in checks)


def kernel(readings: Readings) -> Check:
    lacks = [name for name, there in (("memfd", readings.memfd), ("pidfd", readings.pidfd)) if not there]
    name = f"kernel {readings.kernel}"
    if readings.system != "Linux":
        return Check("fail", "kernel", f"{readings.system}: processes and memory are those of Linux", "run it in a Linux machine or container")
    if lacks:
        hint = "Linux 5.3 or later, and a sandbox that allows memfd_create and pidfd_open"
        return Check("fail", "kernel", f"{name}: no {' and no '.join(lacks)}", hint)
    return Check("ok", "kernel", f"{name}: memfd, pidfd; Python {readings.python}")


def memory(readings: Readings) -> Iterator[Check]:
    machine, budget = readings.machine, readings.budget
    whole = f"memory {show_bytes(machine.limit)} ({machine.source})"
    if budget is None:
        yield Check("ok", "memory", whole)
    elif budget > machine.limit:
        text = f"{whole}: memory_limit says {show_bytes(budget)}, which is more"
        yield Check("warn", "memory", text, "a smaller memory_limit, or none: 85 % of what there is")
    else:
        yield Check("ok", "memory", f"{whole}, {show_bytes(budget)} of it for models")
    if readings.overcommit == NEVER_OVERCOMMIT:
        text = "vm.overcommit_memory is 2: a copy of a process counts as much as the process, so copies of replicas may be refused"
        yield Check("warn", "overcommit", text, "sysctl vm.overcommit_memory=0, or replicas = 1")


def cores(readings: Readings) -> Check:
    usable = readings.cores if readings.quota is None else min(readings.cores, readings.quota)
    text = f"{usable:g} core{'' if usable == 1 else 's'}"
    if readings.quota is not None and readings.quota < readings.machine_cores:
        text += f" (a quota; the machine has {readings.machine_cores})"
    elif readings.cores < readings.machine_cores:
        text += f" (of the machine's {readings.machine_cores})"
    if usable < 1:
        text += ": less than one, so every run stands still for a part of each tenth of a second"
        return Check("warn", "cores", text, "a quota of 1 or more")
    return Check("ok", "cores", text)


def out_of_memory(readings: Readings) -> Check:
    """The two traps: by default, systemd and the kubelet end everything together."""
    kill = readings.group_kill
    if kill is None:
        return Check("ok", "out_of_memory", "a model that runs out of memory ends its own process alone")
    text = f"{kill.text}: one model out of memory ends everything"
    return Check("fail" if kill.sure else "warn", "out_of_memory", text, f"{kill.hint}; see docs/how-to/out-of-memory.md")


def cache(readings: Readings) -> Iterator[Check]:
    place = readings.cache
    if place is None:
        return
    where = f"prepared copies in {place.directory}"
    if place.kind in IN_MEMORY:
        yield Check("warn", "cache", f"{where}, which is on {place.kind}: copies count as memory", "cache_dir on a disk")
    elif not place.writable:
        text = f"{where}, which this user cannot write: every load is a first one, and nothing is learnt for the next start"
        yield Check("warn", "cache", text, "cache_dir where it can be written")
    elif place.free < min(LITTLE_ROOM, place.limit):
        yield Check("warn", "cache", f"{where}, where {show_bytes(place.free)} are free", "more room, or cache_dir elsewhere")
    else:
        yield Check("ok", "cache", f"{where}: {place.kind or 'a disk'}, {show_bytes(place.free)} free")


def files(readings: Readings) -> Check:
    if readings.files < FEW_FILES:
        text = f"{readings.files} open files at most: a connection takes one, and so does a replica"
        return Check("warn", "files", text, f"LimitNOFILE=65536 under systemd, --ulimit nofile=65536 for Docker, ulimit -n {FEW_FILES} in a shell")
    return Check("ok", "files", f"{'no limit of' if readings.files >= 1 << 30 else readings.files} open files")


def libraries(readings: Readings) -> Iterator[Check]:
    for what, extra in readings.missing:
        package = f"wakeful[{extra}]" if extra else "wakeful"
        yield Check("fail", "libraries", f"not installed: {what}", f"pip install '{package}'")
    yield Check("ok", "libraries", f"wakeful {readings.version}, {', '.join(readings.libraries)}")


def configuration(readings: Readings) -> Iterator[Check]:
    problems = readings.problems
    if errors := [problem for problem in problems if problem.severity == "error"]:
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        yield Check("fail", "configuration", f"{errors[0].render().splitlines()[0]}{more}", "wakeful check shows all of it, with lines")
    elif problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        yield Check("warn", "configuration", f"{problems[0].render().splitlines()[0]}{more}", "wakeful check shows all of it, with lines")


def clock(readings: Readings) -> Check:
    if readings.time < BUILT:
        return Check("fail", "clock", "the clock says that it is before 2026: tokens and certificates are held to be invalid", "set it, by NTP")
    return Check("ok", "clock", "the clock is not behind")
