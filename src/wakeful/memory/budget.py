"""How much memory there really is for us: the machine's, or the smallest of the cgroup limits above us (v1 and v2).

Every function reads below a given `proc_root` and `sys_root` (/proc and /sys/fs/cgroup), so that a test can build any machine. What cannot be
read counts as absent. All sums are Python integers: they may be negative, and they never wrap.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from wakeful.memory.systemd import Unit, oom_policy, unit_of

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")

DEFAULT_SHARE = 0.85
MARGIN = 0.02
MARGIN_OF_A_GROUP = 0.15
"""Shares of the limit."""
UNLIMITED = 1 << 60
"""From here a number is no limit: cgroup v1 writes the largest page-aligned 64-bit integer."""


class Memory(NamedTuple):
    """Bytes for us and for whoever shares the same limit."""

    limit: int
    available: int
    """What can still be had, page cache counted as free. Negative when over the limit."""
    source: str
    """Where the limit comes from, for people."""


class _Group(NamedTuple):
    """One control group, or one of its ancestors."""

    path: Path
    version: int


def read_memory(proc_root: Path = PROC, sys_root: Path = CGROUPS) -> Memory:
    """The machine's memory narrowed by every limit above us. Limit and available may come from different groups."""
    machine = _read_keys(proc_root / "meminfo")
    total = machine.get("MemTotal", 0) * 1024
    free = machine.get("MemAvailable", machine.get("MemFree"))
    memory = Memory(total, UNLIMITED if free is None else free * 1024, "the machine")  # unreadable is not the same as full
    groups = read_cgroup(proc_root, sys_root)
    if groups is None:
        return memory
    if not total:
        return groups
    # The machine can be fuller than our group.
    limit, source = (groups.limit, groups.source) if groups.limit < total else (total, memory.source)
    return Memory(limit, min(groups.available, memory.available), source)


def read_cgroup(proc_root: Path = PROC, sys_root: Path = CGROUPS) -> Memory | None:
    """The tightest of the memory limits of our control group and its ancestors; None: no limit.

    Reclaimable page cache (inactive_file) is not counted as used, or a container that has read many files would look full for ever.
    """
    tightest: Memory | None = None
    for group in _groups(proc_root, sys_root, "memory"):
        memory = _limit_of(group)
        if memory is None:
            continue
        if tightest is None:
            tightest = memory
            continue
        limit, source = (memory.limit, memory.source) if memory.limit < tightest.limit else (tightest.limit, tightest.source)
        tightest = Memory(limit, min(memory.available, tightest.available), source)
    return tightest


def cpu_quota(proc_root: Path = PROC, sys_root: Path = CGROUPS) -> float | None:
    """Cores that the tightest quota above us grants, such as 1.5; None: no quota."""
    quotas: list[float] = []
    for group in _groups(proc_root, sys_root, "cpu"):
        if group.version == 2:
            words = _read(group.path / "cpu.max").split()
        else:
            words = [_read(group.path / "cpu.cfs_quota_us"), _read(group.path / "cpu.cfs_period_us")]
        try:
            quota, period = int(words[0]), int(words[1])
        except (IndexError, ValueError):
            continue  # "max", or no such file
        if quota > 0 and period > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


class GroupKill(NamedTuple):
    """One kill by the kernel would end more than the process that it hits."""

    text: str
    """Why."""
    hint: str
    sure: bool
    """False: nobody can be asked, and it is so by default."""


def group_kill(
    proc_root: Path = PROC, sys_root: Path = CGROUPS, policy_of: Callable[[Unit], str | None] = oom_policy
) -> GroupKill | None:
    """Would one kill by the kernel take the daemon with it? None: it takes one process only. `policy_of` asks for OOMPolicy of the unit we are in."""
    groups = list(_groups(proc_root, sys_root, "memory"))
    for group in groups:
        if group.version == 2 and _read(group.path / "memory.oom.group") == "1":
            hint = "on Kubernetes, singleProcessOOMKill: true of the kubelet (from 1.32); under systemd, OOMPolicy=continue"
            return GroupKill(f"memory.oom.group is set in {group.path}", hint, sure=True)
    unit = unit_of(_own_paths(proc_root).get("", ""))
    policy = "continue" if unit is None else policy_of(unit)
    if unit is None or policy == "continue":
        return None
    hint = f"OOMPolicy=continue under [Service] of {unit.name}"
    if policy is None:
        return GroupKill(f"systemd stops {unit.name} after an out-of-memory kill unless it has OOMPolicy=continue", hint, sure=False)
    return GroupKill(f"systemd ends all of {unit.name} after an out-of-memory kill: it has OOMPolicy={policy}", hint, sure=True)


def oom_kills(proc_root: Path = PROC, sys_root: Path = CGROUPS) -> int | None:
    """Processes of our group that the kernel has killed for memory so far (of the machine where there is no group); None: not told.

    A counter: compare two readings.
    """
    own = next(_groups(proc_root, sys_root, "memory"), None)
    if own is not None:
        name = "memory.events" if own.version == 2 else "memory.oom_control"
        kills = _read_keys(own.path / name).get("oom_kill")
        if kills is not None:
            return kills
    return _read_keys(proc_root / "vmstat").get("oom_kill")


def resolve_budget(setting: float | None, machine: Memory) -> int:
    """Bytes that models may hold: as set (an int), or the set share (a float from 0 to 1; default 85 %) of the limit."""
    if isinstance(setting, int):
        return setting
    return int(machine.limit * (DEFAULT_SHARE if setting is None else setting))


def margin(machine: Memory, group_kill: bool) -> int:
    """Bytes that are left alone whatever the budget says: more where one kill by the kernel would end the daemon too."""
    return int(machine.limit * (MARGIN_OF_A_GROUP if group_kill else MARGIN))


def headroom(budget: int, resident: int, available: int, margin: int = 0) -> int:
    """Bytes that may still be loaded: within the budget, and really there with `margin` left over. Negative: that much must go first."""
    return min(budget - resident, available - margin)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _read_number(path: Path) -> int | None:
    """A non-negative number; None for "max", for anything else and for no file."""
    text = _read(path)
    return int(text) if text.isdecimal() else None


def _read_keys(path: Path) -> dict[str, int]:
    """Lines of a name and a number: meminfo, vmstat, memory.stat, memory.events."""
    found: dict[str, int] = {}
    for line in _read(path).splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdecimal():
            found[words[0].rstrip(":")] = int(words[1])
    return found


def _own_paths(proc_root: Path) -> dict[str, str]:
    """Our path in every hierarchy by controller; "" is the unified one of v2."""
    paths: dict[str, str] = {}
    for line in _read(proc_root / "self" / "cgroup").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                paths[controller] = parts[2]
    return paths


def _groups(proc_root: Path, sys_root: Path, controller: str) -> Iterator[_Group]:
    """Our group for a controller and its ancestors, innermost first; v1 where v1 has the controller.

    In a container our path may be one that only the host can see. Then its own group is mounted at the root, where the walk ends anyway.
    """
    paths = _own_paths(proc_root)
    if controller in paths:
        base, path, version = sys_root / controller, paths[controller], 1
    elif "" in paths:
        hybrid = sys_root / "unified"
        base, path, version = hybrid if hybrid.is_dir() else sys_root, paths[""], 2
    else:
        return
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]  # ".." leads out of a cgroup namespace
    for depth in range(len(parts), -1, -1):
        directory = base.joinpath(*parts[:depth])
        if directory.is_dir():
            yield _Group(directory, version)


def _limit_of(group: _Group) -> Memory | None:
    stat = _read_keys(group.path / "memory.stat")
    if group.version == 2:
        # Above memory.high the kernel does not kill but slows everything to a crawl: a limit as well.
        limits = [_read_number(group.path / name) for name in ("memory.max", "memory.high")]
        used, cache = _read_number(group.path / "memory.current"), stat.get("inactive_file", 0)
    else:
        limits = [_read_number(group.path / "memory.limit_in_bytes")]
        used = _read_number(group.path / "memory.usage_in_bytes")
        cache = stat.get("total_inactive_file", stat.get("inactive_file", 0))
    limit = min((limit for limit in limits if limit is not None), default=UNLIMITED)
    if limit >= UNLIMITED:
        return None
    return Memory(limit, limit - ((used or 0) - cache), f"cgroup v{group.version} {group.path}")
