"""The prepared copy of a model: made after the first load, mapped by the next, rebuilt when it is broken."""

from pathlib import Path
from typing import Any

from tests import onnx_models
from tests.daemon import Daemon, running

MEGABYTES, WIDTH = 4, 512


def ask(daemon: Daemon) -> Any:
    status, answer = daemon.infer("heavy", "x", [0.5] * WIDTH, [1, WIDTH])
    assert status == 200, answer
    return answer["outputs"]


def load_again(daemon: Daemon) -> str:
    """Put the model to sleep, wake it by a request, and tell how it was loaded."""
    daemon.call("POST", "/v2/repository/models/heavy/unload")
    last = daemon.events()[-1]["seq"]
    ask(daemon)
    return str(daemon.wait_event("load", "heavy", since=last)["figures"]["how"])


def test_a_prepared_copy_is_made_used_and_rebuilt(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    onnx_models.heavy(models / "heavy.onnx", MEGABYTES)
    with running(tmp_path / "first", "--models-dir", str(models)) as daemon:
        as_shipped = ask(daemon)
        daemon.wait_event("prepare", "heavy", text="copy of")
        assert load_again(daemon) == "prepared copy"
        assert ask(daemon) == as_shipped

        (weights,) = (tmp_path / "first" / "cache").rglob("weights.bin")
        size = weights.stat().st_size
        graph = weights.with_name("model.onnx")
        graph.write_bytes(b"\xff" * graph.stat().st_size)  # of the right size, so that only loading it tells
        last = daemon.events()[-1]["seq"]
        assert load_again(daemon) == "as shipped"
        assert ask(daemon) == as_shipped
        daemon.wait_event("prepare", "heavy", text="copy of", since=last)
        assert load_again(daemon) == "prepared copy"
        assert ask(daemon) == as_shipped
        assert weights.stat().st_size == size

    with running(tmp_path / "first", "--models-dir", str(models)) as daemon:  # a new life finds the copy of the last one
        assert ask(daemon) == as_shipped
        assert daemon.wait_event("load", "heavy")["figures"]["how"] == "prepared copy"


def test_prepare_off_makes_no_copy(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    onnx_models.heavy(models / "heavy.onnx", MEGABYTES)
    (models / "models.toml").write_text('[defaults]\nprepare = "off"\n')
    with running(tmp_path / "daemon", "--models-dir", str(models)) as daemon:
        ask(daemon)
        daemon.wait_event("probe", "heavy")
        assert load_again(daemon) == "as shipped"
        assert not daemon.events(kind="prepare")
        assert not list((tmp_path / "daemon" / "cache").rglob("weights.bin"))
