"""What processes with models cannot do, as the kernel sees it."""

from pathlib import Path

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running


@pytest.fixture
def models(tmp_path: Path) -> Path:
    onnx_models.ident(tmp_path / "ident.onnx")
    return tmp_path


def replica_of(daemon: Daemon) -> Path:
    """/proc/PID of one."""
    assert daemon.infer("ident", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    return Path("/proc", str(daemon.replicas()[0]))


def status(process: Path, name: str) -> str:
    return next(line.split(":", 1)[1].strip() for line in process.joinpath("status").read_text().splitlines() if line.startswith(name))


def limit(process: Path, name: str) -> str:
    """The soft one."""
    return next(line[26:].split()[0] for line in process.joinpath("limits").read_text().splitlines() if line.startswith(name))


def network(process: Path) -> str:
    return str(process.joinpath("ns", "net").readlink())


def keeps(daemon: Daemon, what: str) -> bool:
    """A kernel, or a container, may forbid to give it up; then the log says so."""
    return f"for onnx keep {what}" in daemon.log


def test_by_default(models: Path) -> None:
    with running(models / "daemon", "--models-dir", str(models), "--no-grpc") as daemon:
        replica = replica_of(daemon)
        assert status(replica, "NoNewPrivs") == "1"
        assert limit(replica, "Max core file size") == "0"
        assert (network(replica) != network(Path("/proc/self"))) or keeps(daemon, "the network")


def test_each_can_be_allowed(models: Path) -> None:
    allowed = ["--worker-network", "--worker-new-privileges", "--worker-core-dumps"]
    with running(models / "daemon", "--models-dir", str(models), "--no-grpc", *allowed) as daemon:
        replica = replica_of(daemon)
        assert status(replica, "NoNewPrivs") == status(Path("/proc/self"), "NoNewPrivs")
        assert limit(replica, "Max core file size") == limit(Path("/proc/self"), "Max core file size")
        assert network(replica) == network(Path("/proc/self"))


def test_limits(models: Path) -> None:
    with running(models / "daemon", "--models-dir", str(models), "--no-grpc", "--worker-memory", "2GB", "--worker-largest-file", "1GB") as daemon:
        replica = replica_of(daemon)
        assert limit(replica, "Max data size") == str(2 * 10**9)
        assert limit(replica, "Max file size") == str(10**9)


def test_whoever_hits_its_own_limit_sends_nobody_else_away(models: Path) -> None:
    """Nobody's leaving would help."""
    onnx_models.weighty(models / "heavy.onnx", 160)
    with running(models / "daemon", "--models-dir", str(models), "--no-grpc", "--worker-memory", "160MB") as daemon:
        replica = replica_of(daemon)
        code, body = daemon.infer("heavy", "x", [1, 2, 3, 4], [1, 4])
        assert code == 503
        assert "worker_memory allows it 153 MiB" in body["error"]
        assert replica.exists()
        assert not [event for event in daemon.events() if event["kind"] == "evict"]


def test_the_kernel_takes_it_before_the_daemon(models: Path) -> None:
    """Also where a container has given all of its processes a higher score, which may not be lowered."""
    for score, expected in ((0, 600), (900, 900)):
        launcher = ["sh", "-c", f'echo {score} > /proc/self/oom_score_adj && exec "$@"', "sh"]
        with running(models / f"daemon{score}", "--models-dir", str(models), "--no-grpc", launcher=launcher) as daemon:
            assert int((replica_of(daemon) / "oom_score_adj").read_text()) == expected


def test_a_model_that_wants_more_than_it_may_have_fails_alone(models: Path) -> None:
    onnx_models.hungry(models / "hungry.onnx")
    with running(models / "daemon", "--models-dir", str(models), "--no-grpc", "--worker-memory", "1GB", "--memory-limit", "16GB") as daemon:
        code, body = daemon.infer("hungry", "size", [2_000_000_000], [1], "INT64")
        assert code in (500, 503), body
        assert replica_of(daemon).exists()
