"""What lies in a models directory and is no model, or more than one: nothing of it is executed, and nothing beside it is told to callers.

Archives and addresses as sources of models are not tested: models cannot be uploaded or fetched.
"""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests import onnx_models
from tests.daemon import Daemon, running

SECRET = "Bec4use-nobody-may-read-th1s"


class Payload:
    """Creates a file when somebody unpickles it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (str(self._file), "w")


def keep_weights_in(model: Path, location: str) -> None:
    """Let a model with external weights say that they are in another file."""
    graph = onnx.load(model, load_external_data=False)
    for weights in graph.graph.initializer:
        next(entry for entry in weights.external_data if entry.key == "location").value = location
    onnx.save(graph, model)


OUTSIDE = {
    "dots": "../outside/weights.bin", "dots-to-nothing": "../outside/nothing.bin", "absolute": "{outside}/weights.bin",
    "absolute-to-nothing": "{outside}/nothing.bin", "through-a-link": "way/weights.bin", "roundabout": "./way/../../outside/weights.bin",
}
"""Models that keep their weights out of the directory: where."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("artefacts")
    models, outside = directory / "models", directory / "outside"
    models.mkdir()
    outside.mkdir()
    onnx_models.ident(models / "ident.onnx")
    onnx_models.ident(outside / "elsewhere.onnx")
    (outside / "secret.txt").write_text(SECRET)
    onnx_models.heavy(outside / "weights.onnx", 1, external=True)
    (outside / "weights.onnx.data").rename(outside / "weights.bin")
    (models / "way").symlink_to(outside)
    for name, location in OUTSIDE.items():
        model = onnx_models.heavy(models / f"{name}.onnx", 1, external=True)
        (models / f"{name}.onnx.data").unlink()
        keep_weights_in(model, location.format(outside=outside))
    for name in ("weights-by-link", "weights-by-hard-link"):
        onnx_models.heavy(models / f"{name}.onnx", 1, external=True)
        (models / f"{name}.onnx.data").unlink()
    (models / "weights-by-link.onnx.data").symlink_to(outside / "weights.bin")
    (models / "weights-by-hard-link.onnx.data").hardlink_to(outside / "weights.bin")
    (models / "hard-link.onnx").hardlink_to(outside / "elsewhere.onnx")
    (models / "link.onnx").symlink_to(outside / "elsewhere.onnx")
    (models / "link-to-a-secret.onnx").symlink_to(outside / "secret.txt")
    (models / "link-to-passwd.onnx").symlink_to("/etc/passwd")
    (models / "link-to-a-directory.onnx").symlink_to("/etc")
    (models / "link-to-a-device.onnx").symlink_to("/dev/zero")
    (models / "link-to-nothing.onnx").symlink_to(outside / "nothing.onnx")
    (models / "link-to-itself.onnx").symlink_to("link-to-itself.onnx")
    os.mkfifo(models / "pipe.onnx")
    for protocol in (0, pickle.HIGHEST_PROTOCOL):
        (models / f"pickle-{protocol}.onnx").write_bytes(pickle.dumps(Payload(directory / "executed"), protocol))
    (models / "script.onnx").write_text(f"#!/bin/sh\ntouch {directory}/executed\n")
    (models / "script.onnx").chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def daemon(directory: Path) -> Iterator[Daemon]:
    with running(directory / "daemon", "--models-dir", str(directory / "models"), "--no-grpc") as daemon:
        yield daemon


def answers(daemon: Daemon, model: str) -> list[tuple[int, str]]:
    """All that a caller can get to know of a model: status and text."""
    calls = [
        ("GET", f"/v2/models/{model}"), ("GET", f"/v2/models/{model}/config"), ("POST", f"/v2/repository/models/{model}/load"),
        ("POST", f"/v1/models/{model}/load"), ("POST", f"/v1/models/{model}/pin"), ("GET", f"/v2/models/{model}/ready"),
    ]
    got = [daemon.call(method, path) for method, path in calls]
    got.append(daemon.infer(model, "x", [0.0] * 512, [1, 512]))
    return [(status, str(body)) for status, body in got]


@pytest.mark.parametrize("model", ["pickle-0", f"pickle-{pickle.HIGHEST_PROTOCOL}", "script", "link-to-a-secret", "link-to-passwd"])
def test_what_is_no_onnx_is_never_executed_nor_shown(daemon: Daemon, directory: Path, model: str) -> None:
    """C50: it is parsed as ONNX, by whatever name it comes, and that fails."""
    for status, text in answers(daemon, model):
        assert status == 503
        assert f"{model}.onnx is not a readable ONNX file" in text
        assert SECRET not in text
        assert "root:" not in text
        assert str(directory) not in text
    assert not (directory / "executed").exists()


@pytest.mark.parametrize("name", ["link-to-a-directory", "link-to-a-device", "link-to-nothing", "link-to-itself", "pipe", "way"])
def test_what_is_no_file_is_no_model(daemon: Daemon, name: str) -> None:
    """C50: opening a pipe would wait for ever, and reading a device never end."""
    assert {status for status, _ in answers(daemon, name)} == {404}


@pytest.mark.parametrize("model", [*OUTSIDE, "weights-by-link"])
def test_weights_out_of_the_directory_are_refused(daemon: Daemon, directory: Path, model: str) -> None:
    """C50: whatever leads to them; that ONNX Runtime checks this is a reason for its lowest version."""
    for status, text in answers(daemon, model):
        assert status == 503
        assert f"{model}.onnx cannot be loaded: External data path validation failed" in text
        assert str(directory) not in text


@pytest.mark.parametrize("kind", ["dots", "absolute"])
def test_nobody_learns_whether_a_file_outside_exists(daemon: Daemon, kind: str) -> None:
    """C50: of weights that are refused, the answer is the same."""
    there, missing = answers(daemon, kind), answers(daemon, f"{kind}-to-nothing")
    assert [(status, text.replace("nothing.bin", "weights.bin").replace("-to-nothing", "")) for status, text in missing] == there


@pytest.mark.parametrize(("model", "width"), [("link", 4), ("hard-link", 4), ("weights-by-hard-link", 512)])
def test_links_that_an_operator_has_made_are_followed(daemon: Daemon, model: str, width: int) -> None:
    """C50 asks for files inside the directory. A link there can only be made by who may write there, and so put any file there: callers send names,
    which are never joined to a path. Volumes of Kubernetes, caches of model hubs and releases that change by one `ln` are made of links. A hard
    link cannot be told from the file (and installers such as uv make them); the system lets nobody make one to what he may not write."""
    status, body = daemon.infer(model, "x", [0.5] * width, [1, width])
    assert status == 200, body
    assert body["outputs"][0]["shape"] == [1, width]


def test_the_listing_tells_no_more(daemon: Daemon, directory: Path) -> None:
    """C50: paths are shown as configured, not where they lead; and what is wrong with one file is nobody else's trouble."""
    paths = [model["onnx_path"] for model in daemon.call("GET", "/v1/models")[1]]
    assert paths
    assert all(Path(path).parent == directory / "models" for path in paths)
    status, body = daemon.call("POST", "/v1/models/refresh")
    assert (status, len(body["models"])) == (200, len(paths))
    assert daemon.infer("ident", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    assert "Traceback" not in daemon.log
