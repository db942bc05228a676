"""The wheel holds what the program needs at run time, byte for byte, and nothing of the workshop; the sdist holds all that makes a wheel."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.daemon import running

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
LEFT_OVER = (".pyc", ".orig", ".rej", ".new", ".swp", "~")


def built(directory: Path, what: str, root: Path = ROOT) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", what, "-d", str(directory)]
    subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=300)
    [path] = directory.iterdir()
    return path


def digests(directory: Path) -> dict[str, str]:
    """Of every file of the package below a directory, by its path."""
    files = (path for path in (directory / "wakeful").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    found = ((str(path.relative_to(directory)), path.read_bytes()) for path in files)
    return {name: hashlib.sha256(data).hexdigest() for name, data in found if not name.endswith(LEFT_OVER)}


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        content: bytes = answer.read()
        return content


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As an installation has it."""
    directory = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(directory)
    return directory


@pytest.fixture(scope="module")
def from_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the sdist holds, unpacked."""
    directory = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built(tmp_path_factory.mktemp("tar"), "sdist")) as archive:
        archive.extractall(directory, filter="data")
    [root] = directory.iterdir()
    return root


def test_it_holds_every_file_of_the_package(unpacked: Path) -> None:
    """Models, pages, schemas and whatever else is no Python, too."""
    package = digests(SOURCE)
    assert {"wakeful/demo/digits.onnx", "wakeful/demo/demo-model.onnx", "wakeful/py.typed"} <= set(package)
    assert digests(unpacked) == package


def test_it_holds_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"wakeful"}
    assert not [name for name in names if name.endswith(LEFT_OVER)]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_sdist_holds_what_is_packed_with_it(from_sdist: Path) -> None:
    assert digests(from_sdist / "src") == digests(SOURCE)
    for name in ("LICENSE", "README.md", "constraints.txt", "deploy", "docs", "pyproject.toml", "tests", "tools"):
        assert (from_sdist / name).exists()
    assert not [path for path in from_sdist.rglob("*") if path.name.startswith(".venv") or path.name == "__pycache__"]


def test_a_wheel_of_the_sdist_is_the_same(from_sdist: Path, wheel: Path, tmp_path: Path) -> None:
    again = zipfile.ZipFile(built(tmp_path, "wheel", from_sdist))
    assert sorted(again.namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_it_serves_as_it_is_installed(unpacked: Path, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(unpacked)}
    which = [sys.executable, "-c", "import wakeful; print(wakeful.__file__)"]
    done = subprocess.run(which, capture_output=True, text=True, check=True, env=os.environ | environment, cwd=tmp_path)
    assert Path(done.stdout.strip()).is_relative_to(unpacked)
    with running(tmp_path / "d", "--demo", "--no-grpc", env=environment) as daemon:
        assert daemon.infer("demo-model", "input", [1, 2, 3, 4], [1, 4])[0] == 200
        page = fetched(f"{daemon.url}/ui/").decode()
        version = re.findall(r'src="([0-9a-f]+)/', page)[0]
        ui = SOURCE / "wakeful" / "ui"
        assert page == (ui / "index.html").read_text("utf-8").replace("{VERSION}", version)
        for path in ui.rglob("*"):
            if path.suffix in (".js", ".css", ".svg"):
                assert fetched(f"{daemon.url}/ui/{version}/{path.relative_to(ui)}") == path.read_bytes()
    doctor = [sys.executable, "-m", "wakeful", "doctor", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(doctor, capture_output=True, text=True, check=False, env=os.environ | environment, cwd=tmp_path, timeout=60)
    assert done.stderr == ""
    assert "onnxruntime" in done.stdout
