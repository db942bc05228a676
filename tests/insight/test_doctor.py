"""The doctor's checks, over made-up readings; and the verb, as a person runs it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import running
from wakeful.cli.doctor import lines
from wakeful.cli.looks import Looks
from wakeful.config.load import Options, load
from wakeful.config.problems import Problem
from wakeful.insight.doctor import Check, examine, failed
from wakeful.insight.readings import Missing, Place, Readings, place_of, take
from wakeful.memory.budget import GroupKill, Memory

GIB = 1024**3
SECRET = "a-key-that-nobody-must-see"
HEALTHY = Readings(
    version="1.0.0", python="3.12.1", system="Linux", kernel="6.8.0", memfd=True, pidfd=True, machine=Memory(20 * GIB, 15 * GIB, "cgroup v2 /pod"),
    budget=17 * GIB, cores=2, machine_cores=2, quota=None, group_kill=None, overcommit=0, cache=Place(Path("/c"), "ext4", True, 50 * GIB, 10 * GIB),
    files=65536, libraries=("onnxruntime 1.32.0",), missing=(), problems=(), time=1.8e9,
)


def test_a_healthy_machine() -> None:
    checks = examine(HEALTHY)
    assert {check.level for check in checks} == {"ok"}
    assert not failed(checks)
    assert {check.name for check in checks} == {"kernel", "memory", "cores", "out_of_memory", "cache", "files", "libraries", "clock"}


@pytest.mark.parametrize(("changes", "name", "level", "text", "hint"), [
    ({"system": "Darwin"}, "kernel", "fail", "Darwin", "Linux"),
    ({"memfd": False}, "kernel", "fail", "no memfd", "sandbox"),
    ({"memfd": False, "pidfd": False}, "kernel", "fail", "no memfd and no pidfd", "5.3"),
    ({"budget": 30 * GIB}, "memory", "warn", "30 GiB, which is more", "memory_limit"),
    ({"overcommit": 2}, "overcommit", "warn", "copies of replicas may be refused", "vm.overcommit_memory=0"),
    ({"quota": 0.5}, "cores", "warn", "less than one", "quota"),
    ({"group_kill": GroupKill("memory.oom.group is set in /pod", "singleProcessOOMKill: true", sure=True)}, "out_of_memory", "fail",
     "one model out of memory ends everything", "singleProcessOOMKill"),
    ({"group_kill": GroupKill("systemd stops w.service", "OOMPolicy=continue", sure=False)}, "out_of_memory", "warn", "w.service", "=continue"),
    ({"cache": Place(Path("/c"), "tmpfs", True, 50 * GIB, 10 * GIB)}, "cache", "warn", "copies count as memory", "cache_dir on a disk"),
    ({"cache": Place(Path("/c"), "ext4", False, 50 * GIB, 10 * GIB)}, "cache", "warn", "cannot write", "cache_dir"),
    ({"cache": Place(Path("/c"), "ext4", True, 1024, 10 * GIB)}, "cache", "warn", "1.0 KiB are free", "more room"),
    ({"files": 1024}, "files", "warn", "1024 open files", "LimitNOFILE"),
    ({"missing": (Missing("backend xgboost, for fraud", "xgboost"),)}, "libraries", "fail", "fraud", "pip install 'wakeful[xgboost]'"),
    ({"problems": (Problem("unknown-key", "`a` is no key"), Problem("x", "y"))}, "configuration", "fail", "is no key, and 1 more", "check"),
    ({"problems": (Problem("ignored", "`a` is ignored", severity="warning"),)}, "configuration", "warn", "`a` is ignored", "wakeful check"),
    ({"time": 0.0}, "clock", "fail", "before 2026", "NTP"),
])
def test_what_is_not_as_it_should_be(changes: dict[str, object], name: str, level: str, text: str, hint: str) -> None:
    checks = examine(HEALTHY._replace(**changes))  # type: ignore[arg-type]
    told = [check for check in checks if check.level != "ok"]
    assert [(check.name, check.level) for check in told] == [(name, level)]
    assert text in told[0].text
    assert hint in (told[0].hint or "")
    assert failed(checks) == (level == "fail")


@pytest.mark.parametrize(("changes", "text"), [
    ({"quota": 2.0, "machine_cores": 16, "cores": 16}, "2 cores (a quota; the machine has 16)"),
    ({"machine_cores": 16}, "2 cores (of the machine's 16)"),
    ({"cores": 1, "machine_cores": 1}, "1 core"),
])
def test_cores(changes: dict[str, object], text: str) -> None:
    checks = examine(HEALTHY._replace(**changes))  # type: ignore[arg-type]
    assert [check.text for check in checks if check.name == "cores"] == [text]


def test_the_file_system_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    mounts = ["1 0 8:1 / / rw - ext4 /dev/a rw", f"2 1 0:3 / {tmp_path} rw shared:5 - xfs /dev/b rw", f"3 2 0:4 / {tmp_path}/m rw - tmpfs t rw"]
    (tmp_path / "proc" / "self" / "mountinfo").write_text("\n".join(mounts) + "\n")
    (tmp_path / "m").mkdir()
    kinds = {name: place_of(tmp_path / name, GIB, tmp_path / "proc").kind for name in ("m", "m/not/yet", "mm")}
    assert kinds == {"m": "tmpfs", "m/not/yet": "tmpfs", "mm": "xfs"}
    assert place_of(Path("/"), GIB, tmp_path / "proc").kind == "ext4"
    assert place_of(tmp_path, GIB, tmp_path / "none").kind == ""
    assert place_of(tmp_path, GIB).free > 0


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    readings = take(load(Options(cache_dir=tmp_path), {}))
    assert readings.memfd
    assert readings.pidfd
    assert readings.cache is not None
    assert readings.cache.writable
    assert readings.libraries[0].startswith("onnxruntime")
    assert all(isinstance(check, Check) for check in examine(readings))


def test_lines_are_broken_on_a_terminal_only() -> None:
    check = Check("fail", "x", "many words " * 20, "a hint of some words")
    [first, second] = lines([check], Looks())
    assert first.startswith("FAIL  many words")
    assert second == "      hint  a hint of some words"
    broken = list(lines([check], Looks(width=60)))
    assert len(broken) > 3
    assert max(map(len, broken)) <= 60
    assert broken[1].startswith(("      many", "      words"))
    assert next(lines([check], Looks(colour=True))).startswith("\x1b[31mFAIL\x1b[0m  many")


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wakeful", "doctor", *arguments], capture_output=True, text=True, check=False, timeout=60, env=dict(os.environ),
    )


def test_the_verb(tmp_path: Path) -> None:
    onnx_models.ident(tmp_path / "one.onnx")
    done = doctor("--models-dir", str(tmp_path), "--cache-dir", str(tmp_path / "cache"))
    assert done.stderr == ""
    assert done.returncode == (1 if "FAIL" in done.stdout else 0)
    assert "kernel" in done.stdout
    checks = json.loads(doctor("--json", "--cache-dir", str(tmp_path / "cache")).stdout)["data"]["checks"]
    assert set(checks[0]) == {"level", "name", "text", "hint"}
    assert not (tmp_path / "cache").exists()


def test_a_wrong_configuration_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text("[defaults]\nmax_batchsize = 8\n")
    done = doctor("--models-dir", str(tmp_path))
    assert done.returncode == 1
    assert "FAIL  error[unknown-key]" in done.stdout
    assert "kernel" in done.stdout


def test_a_report_holds_the_settings_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(f"""
[defaults]
max_batch_size = 7
[[auth.api_keys]]
key = "{SECRET}"
role = "admin"
[[streams]]
name = "jobs"
broker = "redis"
endpoint = "redis://me:{SECRET}@127.0.0.1:1/0"
input_topic = "in"
output_topic = "out"
""")
    onnx_models.ident(tmp_path / "one.onnx")
    done = doctor("--report", "--models-dir", str(tmp_path), "--jwt-secret", SECRET * 2)
    assert "max_batch_size = 7" in done.stdout, done.stdout
    assert SECRET not in done.stdout + done.stderr
    assert "[[streams]]" in done.stdout


def test_a_daemon_says_it_of_itself(tmp_path: Path) -> None:
    onnx_models.ident(tmp_path / "one.onnx")
    with running(tmp_path / "d", "--models-dir", str(tmp_path), "--no-grpc") as daemon:
        status, answer = daemon.call("GET", "/wakeful/v1/doctor")
        assert status == 200
        assert answer["wakeful"] == 1
        checks = {check["name"]: check for check in answer["checks"]}
        assert set(checks["kernel"]) == {"level", "name", "text", "hint"}
        assert checks["kernel"]["level"] == "ok"
        assert str(daemon.directory / "cache") in checks["cache"]["text"]
        done = doctor("--url", daemon.url)
        assert str(daemon.directory / "cache") in done.stdout
        assert done.returncode == (1 if "FAIL" in done.stdout else 0)
        assert json.loads(doctor("--url", daemon.url, "--json").stdout)["data"]["checks"][0] == checks["kernel"]
        assert doctor("--url", daemon.url, "--report").returncode == 2
        assert daemon.metric("wakeful_load_seconds_count", model="one") == 0


def test_where_no_daemon_is(tmp_path: Path) -> None:
    with socket.socket() as taken:  # nobody listens on it, and nobody else can
        taken.bind(("127.0.0.1", 0))
        done = doctor("--url", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert (done.returncode, done.stdout) == (3, "")
