"""Python models opened without a daemon: what they take and give, and what is said of their mistakes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import python_models
from wakeful.backends.base import Elsewhere, LoadOptions
from wakeful.backends.python import open_model
from wakeful.backends.python_manifest import THREAD_VARIABLES
from wakeful.errors import ExecutionFailed, InvalidInput, OutOfMemory, Unavailable
from wakeful.runtime.messages import TensorSpec
from wakeful.tensors import DTYPES

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(autouse=True)
def _own_streams_and_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Opening a model changes its process; this one is the tests'."""
    monkeypatch.setattr("wakeful.worker.printing.capture", lambda name: None)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    sys.modules.pop("wakeful_model", None)


def opened(path: Path, device: str = "auto") -> Any:
    return open_model(str(path), LoadOptions(device))


def refused(path: Path) -> str:
    with pytest.raises(Unavailable) as caught:
        opened(path)
    return caught.value.message


# ── what it takes and gives ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_signature_and_run(tmp_path: Path) -> None:
    model = opened(python_models.ident(tmp_path / "m"))
    assert model.signature.inputs == (TensorSpec("x", "FP32", ("N", 4)),)
    assert not model.signature.undeclared
    [y] = model.run({"x": X})
    assert np.shares_memory(y, X)  # nothing is copied on the way through


def test_without_a_signature_the_outputs_are_known_after_a_run(tmp_path: Path) -> None:
    model = opened(python_models.undeclared(tmp_path / "m"))
    assert model.signature.undeclared
    assert model.outputs == ()
    model.run({"a": X, "b": np.array([True])})
    assert model.outputs == (TensorSpec("out_a", "FP32", (2, 4)), TensorSpec("out_b", "BOOL", (1,)))


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "BYTES"])
def test_datatypes_are_found_by_the_array(tmp_path: Path, name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "BF16" else np.dtype(DTYPES[name].numpy)
    model = opened(python_models.undeclared(tmp_path / "m"))
    [y] = model.run({"x": np.ones(3, dtype)})
    assert model.outputs[0].datatype == name
    assert y.tobytes() == np.ones(3, dtype).tobytes()


def test_texts_are_bytes_whatever_they_hold(tmp_path: Path) -> None:
    declares = 'signature = {"inputs": {"s": ("BYTES", ["N"])}, "outputs": {"n": ("INT64", ["N"]), "s": ("BYTES", ["N"])}}'
    predict = 'return {"n": [len(s) for s in inputs["s"]], "s": [s + b"!" for s in inputs["s"]]}'
    model = opened(python_models.model(tmp_path / "m", declares=declares, predict=predict))
    lengths, texts = model.run({"s": np.array([b"\xff\x00", b"abc"], object)})
    assert lengths.tolist() == [2, 3]
    assert texts.tolist() == [b"\xff\x00!", b"abc!"]
    assert model.run({"s": np.array(["ü"], object)})[0].tolist() == [2]  # as the self-test makes them up


@pytest.mark.parametrize(("predict", "words"), [
    ('return {"y": inputs["x"].astype("f8")}', ["output y is float64", "declared is FP32", ".astype(np.float32)"]),
    ('return {"z": inputs["x"]}', ["['y'] as declared", "['z']"]),
    ('return inputs["x"]', ["must return a dict", "ndarray"]),
    ('return {"y": {1, 2}}', ["output y is object", "declared is FP32"]),
    ("raise RuntimeError('too bad')", ["RuntimeError: too bad"]),
    ("import sys; sys.exit(3)", ["it called sys.exit(3)"]),
    ("assert False", ["AssertionError"]),
])
def test_its_own_faults(tmp_path: Path, predict: str, words: list[str]) -> None:
    model = opened(python_models.model(tmp_path / "m", predict=predict))
    with pytest.raises(ExecutionFailed) as caught:
        model.run({"x": X})
    assert all(word in caught.value.message for word in words), caught.value.message
    assert str(tmp_path) not in caught.value.message


def test_what_is_no_datatype(tmp_path: Path) -> None:
    model = opened(python_models.undeclared(tmp_path / "m"))
    with pytest.raises(ExecutionFailed, match="output out_x is complex128, which no datatype"):
        model.run({"x": np.ones(2, complex)})
    model = opened(python_models.model(tmp_path / "n", declares="", predict='return {"y": [None, 3]}'))
    with pytest.raises(ExecutionFailed, match="give an array of bytes or str"):
        model.run({})


def test_the_callers_fault_is_an_exception_of_that_name(tmp_path: Path) -> None:
    for top in ("class InvalidInput(Exception): pass", "from wakeful.errors import InvalidInput"):
        model = opened(python_models.model(tmp_path / "m", top=top, predict='raise InvalidInput("x must be sorted")'))
        with pytest.raises(InvalidInput, match=r"^x must be sorted$"):
            model.run({"x": X})


def test_out_of_memory_by_any_name(tmp_path: Path) -> None:
    for error in ("MemoryError", "OutOfMemoryError"):
        model = opened(python_models.model(tmp_path / "m", top="class OutOfMemoryError(RuntimeError): pass", predict=f'raise {error}("card")'))
        with pytest.raises(OutOfMemory, match="out of memory: card"):
            model.run({"x": X})


def test_the_device_is_handed_on(tmp_path: Path) -> None:
    path = python_models.model(tmp_path / "m", load="self.device = device", predict='return {"y": [self.device]}', declares="")
    for wanted, told in (("auto", "cpu"), ("cpu", "cpu"), ("cuda:1", "cuda:1")):
        model = opened(path, wanted)
        assert model.device == told
        assert model.run({})[0].tolist() == [told]
        assert not (model.forkable and told != "cpu")


def test_auto_is_a_gpu_where_the_code_has_pytorch_and_that_finds_one(tmp_path: Path) -> None:
    top = """
import sys, types
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: True))
"""
    try:
        assert opened(python_models.model(tmp_path / "m", top=top)).device == "cuda"
    finally:
        del sys.modules["torch"]


# ── what cannot be opened ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def snooze(path: Path, manifest: str) -> Path:
    path.mkdir()
    (path / "snooze_model.json").write_text(manifest)
    return path


@pytest.mark.parametrize(("make", "words"), [
    (lambda path: python_models.write(path, "import no_such_library"), ["wakeful_model.py, line 1", "No module named 'no_such_library'"]),
    (lambda path: python_models.write(path, "x = 1\ndef"), ["wakeful_model.py, line 2", "SyntaxError"]),
    (lambda path: python_models.write(path, "import sys\nsys.exit(7)"), ["wakeful_model.py, line 2", "it called sys.exit(7)"]),
    (lambda path: python_models.write(path, "x = 1"), ["defines no class Model"]),
    (lambda path: python_models.write(path, "class Model:\n    def load(self, d, e): pass"), ["no method predict()"]),
    (lambda path: python_models.model(path, load="open('/nowhere/at/all')"), ["wakeful_model.py, line 4", "FileNotFoundError"]),
    (lambda path: python_models.model(path, declares="signature = 3"), ['signature must be a dict with "inputs" and "outputs"']),
    (lambda path: python_models.model(path, declares='signature = {"inputs": {"x": ("F4", [1])}, "outputs": {"y": ("FP32", [1])}}'),
     ["signature: inputs: x: datatype must be one of BOOL", "'F4'"]),
    (lambda path: python_models.model(path, declares='signature = {"inputs": {"x": ("FP32", [-1])}, "outputs": {}}'), ["got -1 in it"]),
    (lambda path: python_models.model(path, declares='signature = {"inputs": {"x": "FP32"}, "outputs": {}}'), ["(datatype, shape)"]),
    (lambda path: python_models.ident(path, pyhton="python3"), ["wakeful_model.toml", "pyhton is not known"]),
    (lambda path: python_models.ident(path, python=3), ["wakeful_model.toml: python must be text, got 3"]),
    (lambda path: python_models.ident(path, env={"A": 1}), ["env.A must be text, got 1"]),
    (lambda path: python_models.model(path, declares='signature = {"inputs": {"x": ([], [1])}, "outputs": {"y": ("FP32", [1])}}'), ["got []"]),
    (lambda path: snooze(path, '{"env": {"A=B": "1"}}'), ["env.A=B cannot be a variable"]),
    (lambda path: snooze(path, r'{"env": {"A": "\u0000"}}'), ["env.A cannot be a variable"]),
    (lambda path: snooze(path, r'{"env": {"A": "\ud800"}}'), ["env.A cannot be a variable"]),
    (lambda path: snooze(path, r'{"python": "bin/\u0000"}'), ["is not there, or may not be executed"]),
    (lambda path: snooze(path, "[" * 100_000), ["snooze_model.json is not valid JSON"]),
    (lambda path: python_models.ident(path, python="venv/bin/python"), ["the interpreter venv/bin/python is not there"]),
    (lambda path: python_models.ident(path, **{"class": "Other"}), ["defines no class Other"]),
])
def test_what_cannot_be_opened_says_where_and_why(tmp_path: Path, make: Callable[[Path], Path], words: list[str]) -> None:
    message = refused(make(tmp_path / "m"))
    assert all(word in message for word in words), message
    assert "Traceback" not in message


def test_the_traceback_is_printed_from_the_models_code_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = opened(python_models.write(tmp_path / "m", """
        import json
        class Model:
            def load(self, model_dir, device): pass
            def predict(self, inputs):
                return json.loads("{")
    """))
    with pytest.raises(ExecutionFailed):
        model.run({"x": X})
    printed = capfd.readouterr().err
    assert f'{tmp_path}/m/wakeful_model.py", line 6, in predict' in printed
    assert "python_code.py" not in printed


def test_nothing_is_written_into_the_models_directory(tmp_path: Path) -> None:
    path = python_models.model(tmp_path / "m", top="import beside")
    (path / "beside.py").write_text("x = 1\n")
    opened(path)
    sys.modules.pop("beside")
    assert sorted(entry.name for entry in path.iterdir()) == ["beside.py", "wakeful_model.py"]


def test_requirements_are_not_installed_and_that_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = python_models.ident(tmp_path / "m")
    (path / "requirements.txt").write_text("# nothing\n")
    opened(path)
    assert "requirements.txt" not in capfd.readouterr().err
    (path / "requirements.txt").write_text("torch>=2\n")
    opened(path)
    assert f"not installed by anybody but you: {sys.executable} -m pip install -r requirements.txt" in capfd.readouterr().err


# ── where it runs ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("manifest", "options", "python"), [
    ({"python": "/usr/bin/python3"}, LoadOptions(), "/usr/bin/python3"),
    ({"env": {"A": "b"}}, LoadOptions(), sys.executable),
    ({}, LoadOptions(threads=3), sys.executable),
])
def test_another_interpreter_an_environment_or_threads_are_found_elsewhere(
    tmp_path: Path, manifest: dict[str, Any], options: LoadOptions, python: str,
) -> None:
    path = python_models.ident(tmp_path / "m", **manifest)
    with pytest.raises(Elsewhere) as wish:
        open_model(str(path), options)
    assert wish.value.python == python
    assert wish.value.env == dict.fromkeys(THREAD_VARIABLES, str(options.threads)) | manifest.get("env", {})
    open_model(str(path), LoadOptions(moved=True))


def test_what_a_copy_would_share_is_noticed(tmp_path: Path) -> None:
    """In a process of its own, which has no library that would be a reason before."""
    code = """
import sys, threading, time
from wakeful.backends.python_fork import Innocence
innocence = Innocence()
print(innocence.lost())
with open(sys.argv[1], "w"):
    print(innocence.lost())
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(innocence.lost())
exec(sys.argv[2])
print(innocence.lost())
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "weights"), python_models.openmp()], timeout=60, stdout=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert run.stdout.splitlines() == ["", f"it keeps {tmp_path / 'weights'} open, which a copy would share", "it has 2 threads", "it uses libgomp"]


def test_a_class_may_refuse_to_be_copied(tmp_path: Path) -> None:
    model = opened(python_models.model(tmp_path / "m", top="", declares="forkable = False"))
    assert not model.forkable


def test_a_directory_that_is_something_else_is_told_with_what_it_has(tmp_path: Path) -> None:
    for name in ("config.json", "model.onnx"):
        (tmp_path / name).touch()
    with pytest.raises(Unavailable, match=r"with wakeful_model\.py or snooze_model\.py, and this one has config\.json, model\.onnx"):
        open_model(str(tmp_path), LoadOptions())
    (tmp_path / "snooze_model.json").write_text('{"entrypoint": "main.py"}')
    with pytest.raises(Unavailable, match=r"no main\.py, which snooze_model\.json names .* it has config\.json, model\.onnx, snooze_model\.json"):
        open_model(str(tmp_path), LoadOptions())
