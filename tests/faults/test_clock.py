"""The wall clock is set while the daemon serves: nothing that it decides depends on it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import wakeful
from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, running, wait_until

DAY = 86_400
STEPS = {"a day ahead": DAY, "a year back": -365 * DAY, "to the epoch": -60 * 365 * DAY}
PATCH = """
import time
true = time.time
time.time = lambda: true() + float(open({path!r}).read() or 0)
"""
WALL = {"time", "time_ns", "strftime", "localtime", "gmtime", "ctime", "asctime", "datetime", "date"}
SHOWN = {
    "wakeful/clock.py": {"time.time"},
    "wakeful/cli/figures.py": {"time.strftime", "time.localtime"},
    "wakeful/telemetry/logs.py": {"time.strftime", "time.localtime", "time.gmtime"},
    "wakeful/insight/explain.py": {"time.strftime", "time.localtime"},
    "wakeful/cluster/planning/conditions.py": {"from datetime"},  # times in objects of Kubernetes
    "wakeful/cluster/controller/lease.py": {"from datetime"},
    "wakeful/cluster/controller/leader.py": {"from datetime"},  # from when a certificate holds
    "wakeful/cluster/controller/metrics_api.py": {"from datetime"},
    "wakeful/cluster/controller/metrics_values.py": {"from datetime"},  # when a value was read, for an autoscaler
    "wakeful/cluster/controller/tls.py": {"from datetime"},
}
"""Who may ask the wall clock, or turn its seconds into words."""
ASKED_OF_CLOCK = {
    "wakeful/telemetry/events.py",  # when it was, for people
    "wakeful/telemetry/logs.py",
    "wakeful/insight/watch.py",  # when a model's state has changed, for people
    "wakeful/insight/state.py",
    "wakeful/insight/explain.py",
    "wakeful/insight/stream.py",  # and when a token expires
    "wakeful/frontends/oip_bodies.py",  # Triton's last_inference, which is a wall clock's
    "wakeful/frontends/access.py",  # a token's `exp`, likewise
    "wakeful/prepared/identity.py",  # files' times are the wall clock's
    "wakeful/prepared/cache.py",
    "wakeful/prepared/knowledge.py",
    "wakeful/cluster/agent/agent.py",  # when a model was last used, for a controller on another machine
    "wakeful/cluster/controller/lease.py",  # the first epoch
    "wakeful/cluster/controller/metrics_api.py",  # from when a certificate holds
    "wakeful/cluster/controller/leader.py",  # what the API server keeps: read once, and counted on by the monotonic clock
    "wakeful/cli/cluster_explain.py",
    "wakeful/cli/events.py",  # of the last hour
    "wakeful/insight/readings.py",  # is it set at all?
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("clock")
    models = directory / "models"
    models.mkdir()
    onnx_models.ident(models / "awake.onnx")
    onnx_models.slow(models / "busy.onnx", 100)
    (directory / "site").mkdir()
    (directory / "step").write_text("0")
    (directory / "site" / "sitecustomize.py").write_text(PATCH.format(path=str(directory / "step")))
    return directory


@pytest.fixture(scope="module")
def daemon(directory: Path) -> Iterator[Daemon]:
    """Its `time.time` is what a file says it is."""
    path = f"{directory / 'site'}:{Path(wakeful.__file__).parents[1]}"
    (directory / "models" / "models.toml").write_text('[defaults]\nprepare = "off"\nidle_timeout_secs = 3600\nrequest_timeout_ms = 20000\n')
    with running(directory, "--models-dir", str(directory / "models"), "--no-grpc", env={"PYTHONPATH": path}) as daemon:
        yield daemon


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_a_step_is_felt_by_nobody(daemon: Daemon, directory: Path, step: int) -> None:
    """No deadline passes, nobody falls asleep before or after its time, no pause grows, and events are still told."""
    assert daemon.infer("awake", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    since = daemon.events()[-1]["seq"]
    replicas = daemon.metric("wakeful_load_seconds_count", model="awake")
    with Crowd(daemon, "busy", clients=4) as crowd:
        wait_until(lambda: crowd.answered > 20, "requests are answered")
        (directory / "step").write_text(str(step))
        more = crowd.answered + 50
        wait_until(lambda: crowd.answered > more, "requests are answered after the step")
        (directory / "step").write_text("0")
        again = crowd.answered + 50
        wait_until(lambda: crowd.answered > again, "requests are answered after it was taken back")
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    assert {event["kind"] for event in daemon.events(since=str(since))} <= {"load", "probe", "scale", "prepare", "unload"}
    assert not [event for event in daemon.events(model="awake", since=str(since)) if event["kind"] == "unload"]
    assert daemon.metric("wakeful_load_seconds_count", model="awake") == replicas
    assert daemon.call("GET", "/v2/health/ready")[0] == 200
    wait_until(lambda: calm(daemon, "busy"), "nothing is left over")


def test_the_daemon_under_test_saw_the_steps(daemon: Daemon, directory: Path) -> None:
    (directory / "step").write_text(str(DAY))
    assert daemon.call("POST", "/v2/repository/models/awake/unload")[0] == 200
    later = daemon.events(model="awake")[-1]["time"]
    (directory / "step").write_text("0")
    assert daemon.call("POST", "/v2/repository/models/awake/load")[0] == 200
    assert later - daemon.events(model="awake")[-1]["time"] > DAY / 2


def test_the_wall_clock_is_asked_in_named_places_only() -> None:
    """Everything else goes by `clock.monotonic`, which no step moves."""
    root = Path(wakeful.__file__).parent
    asked: dict[str, set[str]] = {}
    through_clock = set()
    for path in root.rglob("*.py"):
        name = str(path.relative_to(root.parent))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime") and {alias.name for alias in node.names} & WALL:
                asked.setdefault(name, set()).add(f"from {node.module}")
            elif isinstance(node, ast.Import) and any(alias.name == "datetime" for alias in node.names):
                asked.setdefault(name, set()).add("import datetime")
            elif isinstance(node, ast.ImportFrom) and node.module == "wakeful.clock" and any(alias.name == "wall" for alias in node.names):
                through_clock.add(name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                what = f"{node.value.id}.{node.attr}"
                if what == "clock.wall":
                    through_clock.add(name)
                elif node.value.id == "time" and node.attr in WALL:
                    asked.setdefault(name, set()).add(what)
    assert asked == SHOWN
    assert through_clock == ASKED_OF_CLOCK
