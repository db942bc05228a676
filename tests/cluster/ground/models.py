"""Models whose answers say who gave them: y = x * factor, one factor for each name."""

from pathlib import Path

from tests import onnx_models, python_models

CONFIG_NAME = "model.onnx"


def factor_of(name: str) -> float:
    """The same for a name everywhere, and small enough for exact products in FP32."""
    return float(2 + sum(name.encode()) % 97)


def quick(directory: Path, name: str) -> str:
    """x FP32 [N,4] -> y = factor_of(name) * x, in no time. Returns its storageUri; so do all here."""
    place = _place(directory, name)
    onnx_models.times(place / CONFIG_NAME, factor_of(name))
    return f"file://{place}"


def slow_to_load(directory: Path, name: str, seconds: float) -> str:
    """The same, after a load of so many seconds."""
    place = _place(directory, name)
    python_models.model(
        place, top="import time", load=f"time.sleep({seconds})", predict=f'return {{"y": inputs["x"] * inputs["x"].dtype.type({factor_of(name)})}}'
    )
    return f"file://{place}"


def gated(directory: Path, name: str, gate: Path) -> str:
    """The same; its load waits as long as there is a file `gate`."""
    place = _place(directory, name)
    top = f"import os, time\ndef wait():\n    while os.path.exists({str(gate)!r}): time.sleep(0.05)"
    python_models.model(
        place, top=top, load="wait()", predict=f'return {{"y": inputs["x"] * inputs["x"].dtype.type({factor_of(name)})}}'
    )
    return f"file://{place}"


def slow_to_answer(directory: Path, name: str, seconds: float, mb: int = 0) -> str:
    """The same, with so many seconds for each run, and so many MiB that nobody shares."""
    place = _place(directory, name)
    run = f'time.sleep({seconds}); return {{"y": inputs["x"] * inputs["x"].dtype.type({factor_of(name)})}}'
    python_models.model(place, top="import time", load=f"self.weight = b'w' * ({mb} << 20)", predict=run)
    return f"file://{place}"


def heavy(directory: Path, name: str, mb: int, own_mb: int = 0) -> str:
    """The same, with so many MiB of memory, which nobody knows of before it has loaded; `own_mb`: each process needs so many more when it runs."""
    place = _place(directory, name)
    run = f'self.own = self.own or b"x" * ({own_mb} << 20); return {{"y": inputs["x"] * inputs["x"].dtype.type({factor_of(name)})}}'
    python_models.model(place, load=f"self.ballast = b'x' * ({mb} << 20); self.own = b''", predict=run)
    return f"file://{place}"


def refusing(directory: Path, name: str, where: str = "True") -> str:
    """It does not load where the expression `where` holds, such as `os.environ["POD_NAME"].endswith("-0")`."""
    place = _place(directory, name)
    python_models.model(
        place, top="import os\ndef refuse(): raise RuntimeError('this model does not load here')", load=f"({where}) and refuse()",
        predict=f'return {{"y": inputs["x"] * inputs["x"].dtype.type({factor_of(name)})}}',
    )
    return f"file://{place}"


def stalling(directory: Path, name: str, where: str) -> str:
    """Its load never ends where the expression `where` holds, as of `refusing`."""
    place = _place(directory, name)
    python_models.model(
        place, top="import os, time", load=f"({where}) and time.sleep(86400)",
        predict=f'return {{"y": inputs["x"] * inputs["x"].dtype.type({factor_of(name)})}}',
    )
    return f"file://{place}"


def large(directory: Path, name: str, mb: int) -> str:
    """x FP32 [N,4] -> y = x, with so many MiB of weights."""
    place = _place(directory, name)
    onnx_models.weighty(place / CONFIG_NAME, mb)
    return f"file://{place}"


def _place(directory: Path, name: str) -> Path:
    place = directory / name
    place.mkdir(parents=True, exist_ok=True)
    return place
