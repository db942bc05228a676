"""The wheel holds what the program needs at run time, and nothing of the workshop."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = directory.glob("wakeful-*-py3-none-any.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_it_holds_the_package_and_the_demo_models(names: set[str]) -> None:
    package = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*") if path.suffix in (".py", ".onnx", ".typed")}
    assert package <= names
    assert {"wakeful/demo/digits.onnx", "wakeful/demo/demo-model.onnx", "wakeful/py.typed"} <= names


def test_it_holds_nothing_else(names: set[str]) -> None:
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"wakeful"}
    assert not [name for name in names if name.endswith((".pyc", ".orig", ".rej"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)
