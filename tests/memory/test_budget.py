"""C32: made-up machines, each a tree of files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.memory.budget import GroupKill, Memory, cpu_quota, group_kill, headroom, oom_kills, read_cgroup, read_memory, resolve_budget
from wakeful.memory.systemd import Unit, oom_policy

GIB = 1024**3
V1_UNLIMITED = "9223372036854771712"


class Machine:
    """Writes files below a fake /proc and /sys/fs/cgroup."""

    def __init__(self, root: Path) -> None:
        self.proc, self.sys = root / "proc", root / "sys"
        self.proc.mkdir()
        self.sys.mkdir()
        self.write(self.proc, meminfo=f"MemTotal: {16 * GIB // 1024} kB\nMemFree: 1024 kB\nMemAvailable: {10 * GIB // 1024} kB\n")

    def write(self, directory: Path, **files: object) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name.replace("__", ".")).write_text(f"{text}\n")

    def member(self, lines: str) -> None:
        self.write(self.proc / "self", cgroup=lines)

    def group(self, path: str, **files: object) -> None:
        self.write(self.sys / path, **files)

    @property
    def cgroup(self) -> Memory | None:
        return read_cgroup(self.proc, self.sys)

    @property
    def memory(self) -> Memory:
        return read_memory(self.proc, self.sys)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_no_cgroup_at_all(machine: Machine) -> None:
    assert machine.cgroup is None
    assert machine.memory == Memory(16 * GIB, 10 * GIB, "the machine")


def test_v2_page_cache_is_not_used_memory(machine: Machine) -> None:
    machine.member("0::/app")
    machine.group("app", memory__max=4 * GIB, memory__current=int(3.8 * GIB), memory__stat=f"anon 5\ninactive_file {3 * GIB}\nactive_file 7")
    found = machine.memory
    assert found.limit == 4 * GIB
    assert found.available == pytest.approx(3.2 * GIB, abs=2)
    assert "cgroup v2" in found.source


def test_v2_max_is_no_number(machine: Machine) -> None:
    machine.member("0::/app")
    machine.group("app", memory__max="max", memory__high="max", memory__current=5 * GIB)
    assert machine.cgroup is None
    assert machine.memory.limit == 16 * GIB


def test_v2_high_is_a_limit_too(machine: Machine) -> None:
    machine.member("0::/app")
    machine.group("app", memory__max="max", memory__high=3 * GIB, memory__current=GIB)
    assert machine.memory[:2] == (3 * GIB, 2 * GIB)


def test_v1_unlimited_is_no_limit(machine: Machine) -> None:
    machine.member("4:memory:/app\n0::/")
    machine.group("memory/app", memory__limit_in_bytes=V1_UNLIMITED, memory__usage_in_bytes=GIB)
    assert machine.cgroup is None


def test_v1_limit_and_hierarchical_cache(machine: Machine) -> None:
    machine.member("9:cpu,cpuacct:/x\n4:memory:/app")
    machine.group(
        "memory/app",
        memory__limit_in_bytes=2 * GIB,
        memory__usage_in_bytes=2 * GIB,
        memory__stat=f"inactive_file 1\ntotal_inactive_file {GIB}",
    )
    assert machine.memory[:2] == (2 * GIB, GIB)


def test_the_limit_of_an_ancestor_counts(machine: Machine) -> None:
    """The pod is tighter than the container; its other containers have used most of it."""
    machine.member("0::/pod/box")
    machine.group("pod/box", memory__max=4 * GIB, memory__current=GIB)
    machine.group("pod", memory__max=6 * GIB, memory__current=5 * GIB)
    assert machine.memory[:2] == (4 * GIB, GIB)
    machine.group("pod", memory__max=3 * GIB, memory__current=GIB)
    assert machine.memory[:2] == (3 * GIB, 2 * GIB)


def test_over_the_limit_is_negative(machine: Machine) -> None:
    machine.member("0::/app")
    machine.group("app", memory__max=GIB, memory__current=3 * GIB)
    assert machine.memory.available == -2 * GIB


def test_a_full_machine_counts_more_than_a_generous_group(machine: Machine) -> None:
    machine.member("0::/app")
    machine.group("app", memory__max=64 * GIB, memory__current=GIB)
    assert machine.memory == Memory(16 * GIB, 10 * GIB, "the machine")


@pytest.mark.parametrize("path", ["/docker/0123", "/../../outside"])
def test_a_container_that_sees_the_hosts_path(machine: Machine, path: str) -> None:
    """The path does not exist here: our own group is what is mounted at the root."""
    machine.member(f"0::{path}")
    machine.group(".", memory__max=GIB, memory__current=0)
    assert machine.memory[:2] == (GIB, GIB)


def test_hybrid_layout(machine: Machine) -> None:
    """v1 has the memory controller, v2 only names."""
    machine.member("4:memory:/app\n1:name=systemd:/x\n0::/app")
    machine.group("unified/app", cgroup__procs="1")
    machine.group("memory/app", memory__limit_in_bytes=GIB, memory__usage_in_bytes=0)
    assert machine.memory.limit == GIB
    assert "cgroup v1" in machine.memory.source


@pytest.mark.parametrize("text", ["", "-1", "abc", "12 x", "\x00"])
def test_nonsense_is_no_limit(machine: Machine, text: str) -> None:
    machine.member("0::/app\nbroken line")
    machine.group("app", memory__max=text, memory__current=text, memory__stat="inactive_file\nx y", cpu__max=text)
    assert machine.cgroup is None
    assert cpu_quota(machine.proc, machine.sys) is None


def test_cpu_quota_v2_takes_the_tightest(machine: Machine) -> None:
    machine.member("0::/pod/box")
    machine.group("pod/box", cpu__max="max 100000")
    assert cpu_quota(machine.proc, machine.sys) is None
    machine.group("pod", cpu__max="150000 100000")
    assert cpu_quota(machine.proc, machine.sys) == 1.5
    machine.group("pod/box", cpu__max="50000 100000")
    assert cpu_quota(machine.proc, machine.sys) == 0.5


def test_cpu_quota_v1(machine: Machine) -> None:
    machine.member("2:cpu:/app\n3:cpuacct:/app")
    machine.group("cpu/app", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000)
    assert cpu_quota(machine.proc, machine.sys) is None
    machine.group("cpu/app", cpu__cfs_quota_us=200000)
    assert cpu_quota(machine.proc, machine.sys) == 2.0


def test_group_kill(machine: Machine) -> None:
    machine.member("0::/pod/box")
    machine.group("pod/box", memory__oom__group=0)
    assert group_kill(machine.proc, machine.sys) is None
    machine.group("pod", memory__oom__group=1)
    found = group_kill(machine.proc, machine.sys)
    assert found is not None
    assert found.sure
    assert "memory.oom.group" in found.text
    assert "singleProcessOOMKill" in found.hint


@pytest.mark.parametrize(
    ("path", "stops"), [("/system.slice/wakeful.service", True), ("/user.slice/user@1000.service/app.slice/run-1.scope", False), ("/", False)]
)
def test_a_systemd_service_is_stopped_as_a_whole(machine: Machine, path: str, stops: bool) -> None:
    machine.member(f"0::{path}")
    found = group_kill(machine.proc, machine.sys, lambda unit: None)
    assert (found is not None) == stops
    if found is not None:
        assert "OOMPolicy=continue" in found.text
        assert not found.sure


@pytest.mark.parametrize(("policy", "ends"), [("continue", False), ("stop", True), ("kill", True)])
def test_what_a_unit_says_counts(machine: Machine, policy: str, ends: bool) -> None:
    machine.member("0::/user.slice/user-7.slice/user@7.service/app.slice/wakeful.service")
    asked: list[Unit] = []

    def policy_of(unit: Unit) -> str:
        asked.append(unit)
        return policy

    found = group_kill(machine.proc, machine.sys, policy_of)
    assert asked == [Unit("wakeful.service", user=True)]
    assert (found is not None) == ends
    if found is not None:
        assert found.sure
        assert f"OOMPolicy={policy}" in found.text


@pytest.mark.parametrize(("script", "policy"), [
    ('test "$*" = "show --property=OOMPolicy --value a.service" && echo continue', "continue"),
    ("echo stop; exit 1", None),  # no bus
    ("echo", None),  # too old to know the property
])
def test_systemd_is_asked(tmp_path: Path, script: str, policy: str | None) -> None:
    command = tmp_path / "systemctl"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    assert oom_policy(Unit("a.service", user=False), str(command)) == policy


def test_without_systemd_nothing_is_known(tmp_path: Path) -> None:
    assert oom_policy(Unit("a.service", user=False), str(tmp_path / "none")) is None


def test_oom_kills(machine: Machine) -> None:
    assert oom_kills(machine.proc, machine.sys) is None
    machine.write(machine.proc, vmstat="pgfault 9\noom_kill 7")
    assert oom_kills(machine.proc, machine.sys) == 7
    machine.member("0::/app")
    machine.group("app", memory__events="low 0\noom 5\noom_kill 3\noom_group_kill 0")
    assert oom_kills(machine.proc, machine.sys) == 3
    machine.member("4:memory:/app")
    machine.group("memory/app", memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2")
    assert oom_kills(machine.proc, machine.sys) == 2


def test_resolve_budget() -> None:
    machine = Memory(10 * GIB, GIB, "the machine")
    assert resolve_budget(None, machine) == int(8.5 * GIB)
    assert resolve_budget(0.5, machine) == 5 * GIB
    assert resolve_budget(3 * GIB, machine) == 3 * GIB
    assert resolve_budget(1, machine) == 1
    assert resolve_budget(1.0, machine) == 10 * GIB


@given(st.integers(0, 2**63), st.integers(0, 2**64), st.integers(-(2**63), 2**63), st.integers(0, 2**40))
def test_headroom_never_wraps(budget: int, resident: int, available: int, margin: int) -> None:
    room = headroom(budget, resident, available, margin)
    assert room <= budget - resident
    assert room <= available - margin
    assert room in (budget - resident, available - margin)


def test_this_machine_can_be_read() -> None:
    assert read_memory().limit > 0
    assert group_kill() is None or isinstance(group_kill(), GroupKill)


def test_memory_that_cannot_be_read_is_not_taken_for_full(tmp_path: Path) -> None:
    memory = read_memory(tmp_path / "proc", tmp_path / "sys")
    assert headroom(1000, 400, memory.available) == 600
