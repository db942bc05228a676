"""Models that are Python code: a directory with `wakeful_model.py`, run in the replica itself, or with SnoozeML's `snooze_model.py`, run by a worker
of its own (`snooze.py`).

Imported in the nursery, so that NumPy is there when a replica is forked; a model's own libraries are imported by each replica that is not a copy.
"""

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wakeful.backends import snooze
from wakeful.backends.base import Backend, Elsewhere, LoadOptions, Plain
from wakeful.backends.python_code import PLATFORM, ModelCode
from wakeful.backends.python_fork import Innocence
from wakeful.backends.python_manifest import Manifest, read_manifest
from wakeful.errors import ExecutionFailed, Unavailable
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.tensors import DTYPES
from wakeful.worker import printing

LIBRARY = f"numpy {np.__version__}"
UNDECLARED = Signature((), (), PLATFORM, undeclared=True)
BFLOAT16 = "bfloat16"
"""Name of the dtype that `ml_dtypes` adds to NumPy."""

_DATATYPES = {np.dtype(dtype.numpy): name for name, dtype in DTYPES.items() if name not in ("BF16", "BYTES")}


def open_model(path: str, options: LoadOptions) -> Backend:
    """Import the model's code and let it load. Raises Unavailable that names the line where that failed, or OutOfMemory; Elsewhere where the code
    is to run in another interpreter."""
    directory = Path(path)
    manifest = read_manifest(directory)
    printing.capture(_called(directory))
    _tell_requirements(directory, manifest)
    if manifest.snooze:
        return snooze.open_worker(directory, manifest, options)
    if not options.moved and (manifest.python != sys.executable or manifest.env or options.threads > 1):
        raise Elsewhere(manifest.python, manifest.environment(options.threads))
    sys.dont_write_bytecode = True  # the directory is the owner's
    return PythonModel(directory, manifest, options)


def prepare(_path: str, _directory: str) -> None:
    raise Unavailable("a Python model has no prepared copy")


def providers() -> tuple[str, ...]:
    return (f"Python {platform.python_version()}",)


class PythonModel(Plain):
    """The class of a `wakeful_model.py`, loaded."""

    binary = True

    def __init__(self, directory: Path, manifest: Manifest, options: LoadOptions) -> None:
        innocence = Innocence()
        self._code = ModelCode(directory, manifest.code, manifest.class_name)
        self.device = self._code.load(options.device)
        self.signature = self._code.signature() or UNDECLARED
        self._innocence = innocence
        self._wants_copies = self._code.wants_copies and self.device == "cpu"
        self._outputs = self.signature.outputs
        if reason := self._guilt():
            sys.stderr.write(f"further replicas are loaded anew, not copied: {reason}\n")

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._outputs

    @property
    def forkable(self) -> bool:  # type: ignore[override]  # nobody sets it
        return not self._guilt()

    def _guilt(self) -> str:
        return self._innocence.lost() if self._wants_copies else "its class, or its device, says so"

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        given = self._code.predict({name: _with_bytes(array) for name, array in inputs.items()})
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise ExecutionFailed(f"predict() must return a dict of arrays by name, not {_kind(given)}")
        if self.signature.undeclared:
            arrays = {name: _array(name, value) for name, value in given.items()}
            self._outputs = tuple(TensorSpec(name, _datatype(name, array), array.shape) for name, array in arrays.items())
        else:
            specs = self.signature.outputs
            if given.keys() != {spec.name for spec in specs}:
                raise ExecutionFailed(f"predict() must return {[spec.name for spec in specs]} as declared, not {list(given)}")
            arrays = {spec.name: _array(spec.name, given[spec.name]) for spec in specs}
        return [_as_carried(spec, arrays[spec.name]) for spec in self._outputs]


def _with_bytes(array: np.ndarray) -> np.ndarray:
    """The self-test makes up texts; callers' come as bytes."""
    if array.dtype != object or not array.size or isinstance(array.flat[0], bytes):
        return array
    return np.array([text.encode() for text in array.flat], object).reshape(array.shape)


def _array(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except Exception as error:  # whatever stands in for an array may raise anything
        raise ExecutionFailed(f"output {name} cannot be made an array, it is {_kind(value)}: {error}") from error


def _datatype(name: str, array: np.ndarray) -> str:
    """What an output is whose datatype nobody has declared."""
    if array.dtype.name == BFLOAT16:
        return "BF16"
    if array.dtype.kind in "OSU":
        return "BYTES"
    datatype = _DATATYPES.get(array.dtype.newbyteorder("<"))
    if datatype is None:
        raise ExecutionFailed(f"output {name} is {array.dtype}, which no datatype of the Open Inference Protocol holds")
    return datatype


def _as_carried(spec: TensorSpec, array: np.ndarray) -> np.ndarray:
    """As tensors of its datatype are carried: BF16 as its bits, BYTES as objects. A cast would change values in silence."""
    if spec.datatype == "BF16" and array.dtype.name == BFLOAT16:
        return array.view(np.uint16)
    if spec.datatype == "BYTES":
        fits = array.dtype.kind in "SU" or (array.dtype.kind == "O" and all(isinstance(element, bytes | str) for element in array.flat))
    else:
        fits = array.dtype.newbyteorder("<") == np.dtype(DTYPES[spec.datatype].numpy)
    if not fits:
        raise ExecutionFailed(f"output {spec.name} is {array.dtype}, declared is {spec.datatype}{_advice(spec)}")
    return array


def _advice(spec: TensorSpec) -> str:
    if spec.datatype == "BYTES":
        return ": give an array of bytes or str"
    if spec.datatype == "BF16":
        return ": give ml_dtypes.bfloat16, or its bits as uint16"
    return f": cast it with .astype(np.{np.dtype(DTYPES[spec.datatype].numpy).name})"


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _called(directory: Path) -> str:
    """For the log: a version's directory says little by itself."""
    return f"{directory.parent.name}/{directory.name}" if directory.name.isdecimal() else directory.name


def _tell_requirements(directory: Path, manifest: Manifest) -> None:
    try:
        lines = (directory / "requirements.txt").read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    if any(line.strip() and not line.lstrip().startswith("#") for line in lines):
        sys.stderr.write(f"requirements.txt is not installed by anybody but you: {manifest.python} -m pip install -r requirements.txt\n")
