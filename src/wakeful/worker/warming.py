"""Warm-up: requests that the settings ask for, run in a replica that has just opened its model and is not ready yet. They are nobody's, so nothing is
counted; what they find slow the first time (memory to be taken, kernels to be chosen) is no caller's wait. A copy of a live replica needs none.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import default_rng  # by name, as in `backends.trial`

from wakeful.backends import trial
from wakeful.backends.base import Backend
from wakeful.errors import InvalidInput, OutOfMemory, Unavailable, WakefulError
from wakeful.runtime.messages import Signature, TensorSpec, Warmup
from wakeful.tensors import DTYPES, narrow_bf16

_STYLES = {"zeros": trial.ZEROS, "random": trial.PLAIN}


def warm_up(backend: Backend, requests: Sequence[Warmup]) -> None:
    """Run them in their order. Raises Unavailable naming the one that failed, or OutOfMemory."""
    if requests:
        backend.settle()  # what stays is to be warm, not a draft
    for number, request in enumerate(requests, start=1):
        try:
            inputs = inputs_of(backend.signature, request, number)
            for _ in range(request.count):
                trial.run(backend, inputs)
        except OutOfMemory as error:
            raise OutOfMemory(f"{_title(number, request)}: {error.message}") from error
        except WakefulError as error:
            raise Unavailable(f"{_title(number, request)}: {error.message}") from error


def _title(number: int, request: Warmup) -> str:
    what = Path(request.file).name or f"{request.data}, rows = {request.rows}"
    return f"warm-up request {number} ({what}) failed"


def inputs_of(signature: Signature, request: Warmup, seed: int = 0) -> trial.Arrays:
    """Inputs as a model of this signature takes them. Raises InvalidInput that names what is missing, wrong or too much."""
    if request.file:
        return _checked(signature, _read(Path(request.file), signature))
    _refuse_unknown("shapes", request.shapes, [spec.name for spec in signature.inputs])
    _refuse_unknown("sizes", request.sizes, [size for spec in signature.inputs for size in spec.shape if isinstance(size, str)])
    sizes = dict(request.sizes)
    for spec in trial.required(signature):
        if spec.shape and isinstance(spec.shape[0], str):
            sizes.setdefault(spec.shape[0], request.rows)
    random = default_rng(seed)
    chosen = [spec for spec in signature.inputs if not spec.optional or spec.name in request.shapes]
    return {spec.name: trial.elements(spec, _shape(spec, request, sizes), _STYLES[request.data], 1, random) for spec in chosen}


def _refuse_unknown(key: str, given: Mapping[str, object], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidInput.field(key, f"names among {sorted(set(known))}", repr(name))


def _shape(spec: TensorSpec, request: Warmup, sizes: Mapping[str, int]) -> tuple[int, ...]:
    given = request.shapes.get(spec.name)
    if given is not None:
        _check_shape(spec, given)
        return tuple(given)
    shape = []
    for axis, declared in enumerate(spec.shape):
        size = declared if isinstance(declared, int) else sizes.get(declared or "", request.rows if axis == 0 else -1)
        if size < 0:
            say = f"sizes = {{ {declared} = ... }}" if declared else f"shapes = {{ {spec.name} = [...] }}"
            raise InvalidInput(f"input {spec.name} leaves its axis {axis} free: say {say}")
        shape.append(size)
    return tuple(shape)


def _check_shape(spec: TensorSpec, shape: Sequence[int]) -> None:
    fits = not spec.shape or (
        len(shape) == len(spec.shape)
        and all(not isinstance(declared, int) or declared == size for declared, size in zip(spec.shape, shape, strict=True))
    )
    if not fits:
        shown = "[" + ", ".join("?" if size is None else str(size) for size in spec.shape) + "]"
        raise InvalidInput(f"shape of input {spec.name}: expected {shown}, got {list(shape)}")


# ── from a file ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(file: Path, signature: Signature) -> trial.Arrays:
    """Arrays by the name of an input, from NumPy's .npz, or from the JSON of the Open Inference Protocol."""
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                return {name: _texts(arrays[name]) for name in arrays.files}
        return dict(_decoded(json.loads(file.read_bytes()), signature))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(f"{file.name} cannot be read as .npz, or as JSON of the Open Inference Protocol: {reason}") from error


def _texts(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    return array.astype(object) if array.dtype.kind == "U" else array


def _decoded(body: Any, signature: Signature) -> Iterator[tuple[str, np.ndarray]]:
    datatypes = {spec.name: spec.datatype for spec in signature.inputs}
    for tensor in body["inputs"]:
        name, datatype = tensor["name"], tensor.get("datatype", datatypes.get(tensor["name"], "FP32"))
        kind = "<f4" if datatype == "BF16" else DTYPES[datatype].numpy
        array = np.array(tensor["data"], kind).reshape(tensor["shape"])
        yield name, narrow_bf16(array) if datatype == "BF16" else array


def _checked(signature: Signature, arrays: trial.Arrays) -> trial.Arrays:
    specs = {spec.name: spec for spec in signature.inputs}
    _refuse_unknown("inputs", arrays, list(specs))
    for spec in trial.required(signature):
        if spec.name not in arrays:
            raise InvalidInput.field("inputs", f"{sorted(spec.name for spec in trial.required(signature))}", f"no {spec.name!r}")
    for name, array in arrays.items():
        _check_shape(specs[name], array.shape)
        wanted = np.dtype(DTYPES[specs[name].datatype].numpy)
        if array.dtype != wanted:
            raise InvalidInput.field(f"datatype of input {name}", f"{specs[name].datatype} ({wanted})", str(array.dtype))
    return arrays
