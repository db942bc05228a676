"""Tiny Python models with one peculiarity each. Every function makes a directory and returns its path."""

import json
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

from wakeful.tensors import DTYPES

SIGNED = 'signature = {"inputs": {"x": ("FP32", ["N", 4])}, "outputs": {"y": ("FP32", ["N", 4])}}'
"""As `onnx_models.ident` declares it."""
IDENTITY = 'return {"y": inputs["x"]}'


def write(path: Path, code: str, **manifest: Any) -> Path:
    """A native model; `manifest`: what stands in its wakeful_model.toml, each value as JSON, which is TOML for texts."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "wakeful_model.py").write_text(dedent(code))
    if manifest:
        lines = [f"{key} = {_toml(value)}" for key, value in manifest.items()]
        (path / "wakeful_model.toml").write_text("\n".join(lines) + "\n")
    return path


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def model(path: Path, *, top: str = "", load: str = "pass", predict: str = IDENTITY, declares: str = SIGNED, **manifest: Any) -> Path:
    """One class whose methods have these bodies, a line each, below the module's statements `top`."""
    methods = f"    def load(self, model_dir, device): {load}\n    def predict(self, inputs): {predict}\n"
    return write(path, f"{top}\nclass Model:\n    {declares}\n{methods}", **manifest)


def ident(path: Path, **manifest: Any) -> Path:
    """x FP32 [N,4] -> y the same."""
    return model(path, **manifest)


def undeclared(path: Path, **more: Any) -> Path:
    """Any input name -> out_name, the same."""
    return model(path, declares="", predict='return {f"out_{name}": array for name, array in inputs.items()}', **more)


def openmp() -> str:
    """A statement that loads the library behind OpenMP, as importing scikit-learn or PyTorch does, in a hundredth of the time."""
    spec = find_spec("sklearn")
    assert spec is not None
    assert spec.origin is not None
    [library] = (Path(spec.origin).parents[1] / "scikit_learn.libs").glob("libgomp*")
    return f"import ctypes; ctypes.CDLL({str(library)!r})"


def all_types(path: Path) -> Path:
    """One input [N,2] for each Open Inference datatype, named after it (`in_FP32`), and its copy (`out_FP32`)."""
    inputs = {f"in_{name}": (name, ["N", 2]) for name in DTYPES}
    outputs = {f"out_{name}": (name, ["N", 2]) for name in DTYPES}
    declares = f'signature = {{"inputs": {inputs}, "outputs": {outputs}}}'
    return model(path, declares=declares, predict='return {name.replace("in_", "out_"): array for name, array in inputs.items()}')
