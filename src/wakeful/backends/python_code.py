"""A model's own code: imported, called, and what it raises translated.

The traceback goes to stderr, and so into the daemon's log. Callers get what was raised, in a line, and owners the place where.
"""

import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import numpy as np

from wakeful.errors import ExecutionFailed, InvalidInput, OutOfMemory, Unavailable, WakefulError
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.tensors import DTYPES

PLATFORM = "wakeful_python"
REFUSAL = "InvalidInput"
"""A model that raises an exception of this name, whoever defines it, means that the caller is at fault."""
FRAMES = 20
"""Of a traceback, the innermost."""
SHAPE = "a list of sizes, names and None"


class ModelCode:
    def __init__(self, directory: Path, file: str, class_name: str) -> None:
        """Import the code and make an object of its class. Raises Unavailable or OutOfMemory."""
        self._directory = directory
        self._file = file
        try:
            with _no_return_of_children():
                made = getattr(self._imported(), class_name, None)
                if made is None:
                    raise Unavailable(f"{file} defines no class {class_name}")
                self._model = made()
        except BaseException as error:  # sys.exit too
            raise self._load_fault(error) from error
        for method in ("load", "predict"):
            if not callable(getattr(self._model, method, None)):
                raise Unavailable(f"class {class_name} of {file} has no method {method}()")

    def load(self, device: str) -> str:
        """Let the model load; the device that it was told. Raises as above."""
        device = _resolved(device)
        try:
            with _no_return_of_children():
                self._model.load(str(self._directory), device)
        except BaseException as error:  # as above
            raise self._load_fault(error) from error
        return device

    def signature(self) -> Signature | None:
        """As the model declares it; None if it does not. Raises Unavailable where the declaration is wrong."""
        try:
            declared = getattr(self._model, "signature", None)
        except BaseException as error:  # it may be a property
            raise self._load_fault(error) from error
        if declared is None:
            return None
        if not isinstance(declared, Mapping) or declared.keys() != {"inputs", "outputs"}:
            raise Unavailable(f'{self._file}: signature must be a dict with "inputs" and "outputs"')
        return Signature(self._specs("inputs", declared["inputs"]), self._specs("outputs", declared["outputs"]), PLATFORM)

    @property
    def wants_copies(self) -> bool:
        return bool(getattr(self._model, "forkable", True))

    def predict(self, inputs: Mapping[str, np.ndarray]) -> Any:
        """Raises InvalidInput, OutOfMemory or ExecutionFailed."""
        try:
            with _no_return_of_children():
                return self._model.predict(inputs)
        except BaseException as error:  # sys.exit too: it ends the run, not the replica
            self._tell(error)
            raise _run_fault(error) from error

    def _imported(self) -> ModuleType:
        path = self._directory / self._file
        if str(self._directory) not in sys.path:
            sys.path.insert(0, str(self._directory))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module

    def _specs(self, kind: str, declared: Any) -> tuple[TensorSpec, ...]:
        if not isinstance(declared, Mapping) or not declared:
            raise Unavailable(f"{self._file}: signature: {kind} must be a dict of (datatype, shape) by name")
        return tuple(self._spec(f"{self._file}: signature: {kind}: {name}", name, value) for name, value in declared.items())

    def _spec(self, place: str, name: Any, declared: Any) -> TensorSpec:
        if not isinstance(name, str) or not isinstance(declared, Sequence) or len(declared) != 2:
            raise Unavailable(f'{place} must be a name with (datatype, shape), as "x": ("FP32", ["N", 4])')
        datatype, shape = declared
        if not isinstance(datatype, str) or datatype not in DTYPES:
            raise Unavailable(f"{place}: datatype must be one of {', '.join(DTYPES)}, got {datatype!r}")
        if not isinstance(shape, Sequence) or isinstance(shape, str):
            raise Unavailable(f"{place}: shape must be {SHAPE}, got {shape!r}")
        return TensorSpec(name, datatype, tuple(_size(place, size) for size in shape))

    def _load_fault(self, error: BaseException) -> WakefulError:
        if isinstance(error, WakefulError):
            return error
        self._tell(error)
        if _is_memory(error):
            return OutOfMemory(f"out of memory while loading: {error}")
        return Unavailable(f"{self._place(error)}: {_text(error)}")

    def _tell(self, error: BaseException) -> None:
        """Print the traceback from where the model's code begins."""
        if type(error).__name__ == REFUSAL:
            return
        with suppress(Exception):  # the model may have put anything in the place of stderr
            traceback.print_exception(type(error), error, self._own(error.__traceback__) or error.__traceback__, limit=-FRAMES)

    def _own(self, frames: TracebackType | None) -> TracebackType | None:
        while frames is not None and not self._is_own(frames):
            frames = frames.tb_next
        return frames

    def _is_own(self, frame: TracebackType) -> bool:
        return frame.tb_frame.f_code.co_filename.startswith(f"{self._directory}/")

    def _place(self, error: BaseException) -> str:
        """File and line of the model's own code."""
        if isinstance(error, SyntaxError) and error.filename:
            return f"{Path(error.filename).name}, line {error.lineno}"
        innermost, frames = None, error.__traceback__
        while frames is not None:
            innermost, frames = (frames if self._is_own(frames) else innermost), frames.tb_next
        if innermost is None:
            return self._file
        return f"{Path(innermost.tb_frame.f_code.co_filename).name}, line {innermost.tb_lineno}"


@contextmanager
def _no_return_of_children() -> Iterator[None]:
    """A process that the code in this block forks, and that comes out of it as if it were this one, would answer in its place: it ends here."""
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(0)


def _run_fault(error: BaseException) -> WakefulError:
    if isinstance(error, WakefulError):
        return error
    if type(error).__name__ == REFUSAL:
        return InvalidInput(str(error))
    return OutOfMemory(f"out of memory: {error}") if _is_memory(error) else ExecutionFailed(_text(error))


def _is_memory(error: BaseException) -> bool:
    """PyTorch's own one is known by its name."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def _text(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code if error.code is not None else ''})"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _size(place: str, size: Any) -> int | str | None:
    if size is None or isinstance(size, str) or (isinstance(size, int) and not isinstance(size, bool) and size >= 0):
        return size
    raise Unavailable(f"{place}: shape must be {SHAPE}, got {size!r} in it")


def _resolved(device: str) -> str:
    """What "auto" is: a GPU where the code has imported PyTorch and that finds one."""
    if device != "auto":
        return device
    torch = sys.modules.get("torch")
    return "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
