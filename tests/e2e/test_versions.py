"""Numbered versions: addressed by number, and the new one is ready before the old one goes. Nobody who asks notices."""

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import onnx_models
from tests.crowd import Crowd
from tests.daemon import Daemon, running, wait_until

CONFIG = """
[defaults]
prepare = "off"
idle_timeout_secs = 0
min_residency_secs = 0

[[models]]
id = "both"
path = "two"
versions = "all"

[[models]]
id = "first"
path = "two"
versions = [1]
"""


class Shelf:
    """A daemon and its models directory. Version n of any model multiplies x by n."""

    def __init__(self, daemon: Daemon, directory: Path) -> None:
        self.daemon, self.directory = daemon, directory
        self.scratch = daemon.directory / "unfinished.onnx"

    def put(self, model: str, version: int) -> None:
        """Whole, or not at all."""
        put(self.directory, model, version, self.scratch)

    def take(self, model: str, version: int) -> None:
        shutil.rmtree(self.directory / model / str(version))

    def refresh(self) -> None:
        status, answer = self.daemon.call("POST", "/v1/models/refresh")
        assert status == 200, answer

    def ask(self, model: str, version: str = "") -> tuple[int, Any]:
        """Status, and version and answer."""
        path = f"/v2/models/{model}{version and f'/versions/{version}'}/infer"
        body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
        status, answer = self.daemon.call("POST", path, body)
        return (status, (answer["model_version"], answer["outputs"][0]["data"][0])) if status == 200 else (status, answer["error"])

    def index(self, model: str) -> dict[str, str]:
        """Version to state."""
        return {row["version"]: row["state"] for row in self.daemon.call("POST", "/v2/repository/index")[1] if row["name"] == model}

    def seen(self) -> int:
        return max(int(event["seq"]) for event in self.daemon.events())


def put(directory: Path, model: str, version: int, scratch: Path) -> None:
    onnx_models.times(scratch, version)
    home = directory / model / str(version)
    home.mkdir(parents=True)
    scratch.rename(home / "model.onnx")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    directory = tmp_path_factory.mktemp("versions")
    models = directory / "models"
    models.mkdir()
    for version in (1, 2):
        put(models, "two", version, directory / "scratch.onnx")
    (models / "models.toml").write_text(CONFIG)
    with running(directory / "daemon", "--models-dir", str(models), "--no-grpc") as daemon:
        yield Shelf(daemon, models)


def test_versions_are_addressed_by_path(shelf: Shelf) -> None:
    assert shelf.ask("both") == (200, ("2", 2))
    assert shelf.ask("both", "1") == (200, ("1", 1))
    assert shelf.ask("both", "2") == (200, ("2", 2))
    assert shelf.ask("both", "3") == (404, "model both has no version '3', only 1, 2")
    assert shelf.ask("first") == (200, ("1", 1))
    assert shelf.ask("first", "2")[0] == 404
    call = shelf.daemon.call
    assert call("GET", "/v2/models/both")[1]["versions"] == ["1", "2"]
    assert call("GET", "/v2/models/both/versions/1")[1]["versions"] == ["1", "2"]
    assert call("GET", "/v2/models/first")[1]["versions"] == ["1"]
    assert [row["id"] for row in call("GET", "/v1/models")[1]] == ["both", "first"]
    assert call("GET", "/v2/models/both/versions/1/config")[0] == 200
    assert call("GET", "/v2/models/both/versions/7/config")[0] == 404


def test_each_version_is_a_model_of_its_own(shelf: Shelf) -> None:
    shelf.daemon.call("POST", "/v2/repository/models/both/unload")
    assert shelf.index("both") == {"1": "UNAVAILABLE", "2": "UNAVAILABLE"}
    assert shelf.ask("both", "1")[0] == 200
    assert shelf.index("both") == {"1": "READY", "2": "UNAVAILABLE"}
    assert shelf.daemon.call("GET", "/v2/models/both/versions/1/ready")[0] == 200
    assert shelf.daemon.call("GET", "/v2/models/both/versions/2/ready")[0] == 503
    assert shelf.daemon.call("GET", "/v2/models/both/ready")[0] == 503  # the newest
    shelf.daemon.call("POST", "/v2/repository/models/both/load")
    assert shelf.index("both") == {"1": "READY", "2": "READY"}


def test_counts_are_of_one_version(shelf: Shelf) -> None:
    def counts() -> dict[str, int]:
        rows = shelf.daemon.call("GET", "/v2/models/both/stats")[1]["model_stats"]
        return {row["version"]: row["inference_count"] for row in rows}

    before = counts()
    for version in ("1", "1", "2"):
        assert shelf.ask("both", version)[0] == 200
    after = counts()
    assert {version: after[version] - before[version] for version in after} == {"1": 2, "2": 1}
    (row,) = shelf.daemon.call("GET", "/v2/models/both/versions/2/stats")[1]["model_stats"]
    assert row["inference_count"] == after["2"]
    assert shelf.daemon.metric("wakeful_batch_rows_sum", model="both", version="1") == after["1"]


def test_a_crowd_does_not_notice_a_new_version(shelf: Shelf) -> None:
    """Versions come and go under load by every way there is; each answer is of the version that it names."""
    daemon = shelf.daemon
    shelf.put("rising", 1)
    shelf.refresh()
    ways: list[Callable[[], object]] = [
        shelf.refresh,
        lambda: daemon.process.send_signal(signal.SIGHUP),
        lambda: daemon.call("POST", "/v2/repository/models/rising/load"),
    ]
    with Crowd(daemon, "rising", clients=16, factor=float) as crowd:
        wait_until(lambda: crowd.versions["1"] > 30, "the first version answers")
        for version in range(2, 8):
            shelf.put("rising", version)
            ways[version % 3]()
            wait_until(lambda version=version: crowd.versions[str(version)] > 30, f"version {version} answers")
        shelf.take("rising", 7)
        shelf.refresh()
        wait_until(lambda before=crowd.versions["6"]: crowd.versions["6"] > before + 30, "the one before is back")
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors
    assert shelf.index("rising") == {"6": "READY"}
    wait_until(lambda: daemon.metric("wakeful_replicas", model="rising", version="1") == 0, "the old ones have left")
    for version in range(2, 8):
        ready = daemon.wait_event("load", f"rising:{version}", text="ready")
        left = daemon.wait_event("config", f"rising:{version - 1}", text=f"rising:{version} has taken its place")
        assert ready["seq"] < left["seq"]


def test_a_crowd_does_not_notice_where_there_is_room_for_one_alone(tmp_path: Path) -> None:
    """The new one can only be loaded when the old one is put to sleep for it; who waits then is the new one's."""
    models = tmp_path / "models"
    put(models, "only", 1, tmp_path / "scratch.onnx")
    (models / "models.toml").write_text(CONFIG.partition("[[models]]")[0] + "max_loaded_models = 1\n")
    with running(tmp_path / "daemon", "--models-dir", str(models), "--no-grpc") as daemon:
        shelf = Shelf(daemon, models)
        with Crowd(daemon, "only", clients=16, factor=float) as crowd:
            wait_until(lambda: crowd.versions["1"] > 30, "the first version answers")
            shelf.put("only", 2)
            shelf.refresh()
            wait_until(lambda: crowd.versions["2"] > 30, "the second version answers")
        assert crowd.wrong == []
        assert set(crowd.statuses) == {200}, crowd.errors


def test_a_version_that_does_not_load_leaves_the_old_one(shelf: Shelf) -> None:
    daemon = shelf.daemon
    shelf.put("steady", 1)
    shelf.refresh()
    with Crowd(daemon, "steady", clients=8, factor=float) as crowd:
        wait_until(lambda: crowd.answered > 30, "requests are answered")
        shelf.put("steady", 2)
        file = shelf.directory / "steady" / "2" / "model.onnx"
        whole = file.read_bytes()
        file.write_bytes(whole[:40])
        shelf.refresh()
        event = daemon.wait_event("config", "steady:2", text="does not load, so steady:1 stays")
        assert "model.onnx" in event["text"]
        before = crowd.answered
        wait_until(lambda: crowd.answered > before + 30, "requests are answered")
        assert set(crowd.versions) == {"1"}
        file.write_bytes(whole)
        shelf.refresh()
        wait_until(lambda: crowd.versions["2"] > 30, "the repaired one answers")
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors


def test_a_sleeping_model_goes_over_at_once(shelf: Shelf) -> None:
    shelf.put("asleep", 1)
    shelf.refresh()
    shelf.put("asleep", 2)
    since = shelf.seen()
    shelf.refresh()
    assert shelf.index("asleep") == {"2": "UNAVAILABLE"}
    assert not [event for event in shelf.daemon.events(since=str(since)) if event["kind"] == "load"]
    assert shelf.ask("asleep") == (200, ("2", 2))


def test_a_file_becomes_a_directory_of_versions(shelf: Shelf) -> None:
    onnx_models.times(shelf.directory / "grown.onnx", 1)
    shelf.refresh()
    assert shelf.ask("grown") == (200, ("1", 1))
    with Crowd(shelf.daemon, "grown", clients=4, factor=float) as crowd:
        wait_until(lambda: crowd.answered > 10, "requests are answered")
        (shelf.directory / "grown.onnx").unlink()
        shelf.put("grown", 5)
        shelf.refresh()
        wait_until(lambda: crowd.versions["5"] > 10, "the version answers")
    assert (crowd.wrong, set(crowd.statuses)) == ([], {200})


def test_a_new_version_of_a_named_model(shelf: Shelf) -> None:
    """Of "all", none leaves; of those that are named one by one, no other one comes."""
    shelf.put("two", 3)
    shelf.refresh()
    assert set(shelf.index("both")) == {"1", "2", "3"}
    assert set(shelf.index("first")) == {"1"}
    assert shelf.ask("both") == (200, ("3", 3))
    shelf.take("two", 3)
    shelf.refresh()
    assert shelf.ask("both") == (200, ("2", 2))
    assert shelf.ask("both", "3")[0] == 404


def test_a_pinned_model_stays_pinned(shelf: Shelf) -> None:
    shelf.put("held", 1)
    shelf.refresh()
    assert shelf.daemon.call("POST", "/v1/models/held/pin")[0] == 200
    shelf.put("held", 2)
    shelf.refresh()
    (row,) = [row for row in shelf.daemon.call("GET", "/v1/models")[1] if row["id"] == "held"]
    assert row["pinned"]
    assert shelf.index("held") == {"2": "READY"}


def test_a_load_finds_a_model_that_has_just_come(shelf: Shelf) -> None:
    shelf.put("late", 4)
    assert shelf.ask("late")[0] == 404
    assert shelf.daemon.call("POST", "/v2/repository/models/late/load")[0] == 200
    assert shelf.ask("late", "4") == (200, ("4", 4))
    for name in ("LATE", "..", "nobody", "late/4"):
        assert shelf.daemon.call("POST", f"/v2/repository/models/{name}/load")[0] == 404


def test_events_of_a_model_are_those_of_its_versions(shelf: Shelf) -> None:
    assert {event["model"] for event in shelf.daemon.events(model="both", kind="load")} >= {"both:1", "both:2"}
    assert {event["model"] for event in shelf.daemon.events(model="both:1", kind="load")} == {"both:1"}
