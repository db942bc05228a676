"""What the libraries of tree ensembles (XGBoost, LightGBM, CatBoost) have in common as backends: one matrix of numbers in, one answer a row out."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from wakeful.backends.base import LoadOptions, Plain, told
from wakeful.errors import ExecutionFailed, InvalidInput, OutOfMemory, Unavailable, WakefulError
from wakeful.runtime.messages import Signature, TensorSpec

INPUT, OUTPUT = "input", "output"
"""The files name neither."""
LONGEST = 500
_NOISE = re.compile(r"^\[[\d:]+\] |\S+\.(?:cc|cpp|cu|h):\d+: |Stack trace:.*", re.DOTALL)
"""The time, the line of a library's source, and where that was called from."""

_DATATYPES = {"float32": "FP32", "float64": "FP64"}

Predict = Callable[[np.ndarray], Any]
"""FP32 [N,F], N above 0, in; [N] or [N,K] out."""


class TreeBackend(Plain):
    """One open model. NaN in its input is a missing value, as it is to these libraries."""

    def __init__(
        self, predict: Predict, features: int, platform: str, *, columns: Sequence[str] = (), labels: Sequence[str] = (), device: str = "cpu",
        forkable: bool = True,
    ) -> None:
        """`columns` and `labels` are the names of the features and of the classes, where the file has them. Runs the model once, because none of
        the libraries tells the form of its answers."""
        self.device = device
        self.forkable = forkable
        self._predict = predict
        answer: np.ndarray = predict(np.zeros((1, features), np.float32))
        self._none = answer[:0]
        self.signature = Signature(
            (TensorSpec(INPUT, "FP32", (None, features), columns=told(columns)),),
            (TensorSpec(OUTPUT, _DATATYPES[answer.dtype.name], (None, *answer.shape[1:]), columns=told(labels)),),
            platform,
        )

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        matrix = inputs.get(INPUT)
        if matrix is None:
            raise InvalidInput(f"inputs missing: {INPUT}")
        if not len(matrix):  # of which each library thinks differently
            return [self._none]
        try:
            return [self._predict(matrix)]
        except MemoryError as error:
            raise OutOfMemory(f"out of memory: {reason(error)}") from error
        except Exception as error:  # the libraries have no common base of their own
            raise ExecutionFailed(reason(error)) from error


def cpu_only(options: LoadOptions, library: str) -> None:
    """Raises Unavailable where a device is asked for that this library cannot use."""
    if options.device not in ("auto", "cpu"):
        raise Unavailable(f"{options.device} was asked for, but {library} answers on the CPU only here: set device = auto")


def load_error(error: Exception, path: str, library: str) -> WakefulError:
    """The error of opening the model at `path`, in one sentence."""
    if isinstance(error, WakefulError):
        return error
    name = Path(path).name
    if isinstance(error, MemoryError):
        return OutOfMemory(f"out of memory while loading {name}: {reason(error)}")
    if not Path(path).exists():
        return Unavailable(f"{name} does not exist")
    return Unavailable(f"{name} cannot be loaded by {library}: {reason(error).replace(path, name)}")


def prepare(path: str, directory: str) -> NoReturn:  # noqa: ARG001 - the interface of `catalog.BackendModule`
    """These libraries load a file in milliseconds."""
    raise Unavailable(f"{Path(path).name} needs no prepared copy")


def reason(error: Exception) -> str:
    """What an exception says, in one line that is not too long."""
    text = " ".join(_NOISE.sub("", str(error) or type(error).__name__).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
