"""A worker for SnoozeML's models, run by the interpreter that the model names. Depends on the standard library, and on NumPy if the model wants it.

Where that interpreter has the SDK, its own worker runs. Else this one does, which speaks the same protocol (see `backends.snooze`), and stands in for
`snoozeml.worker` where the model's code imports from there. It runs under Python 3.9 and newer, so it is written in the language of that.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import struct
import sys
import traceback
import types
from array import array
from typing import Any, BinaryIO

PROTOCOL = 1
READY, INFER, RESULT, ERROR, SHUTDOWN = 1, 2, 3, 4, 5
LENGTH, HEAD = struct.Struct("<I"), struct.Struct("<BI")
LARGEST = 1 << 30
"""Bytes of a frame."""


class WorkerError(Exception):
    """Says itself what kind of error it is: invalid_input, oom, load or runtime."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class RawTensor:
    """A tensor of 32-bit floats without NumPy: `data` is a flat array in row-major order."""

    def __init__(self, shape: Any, data: Any) -> None:
        self.shape = tuple(int(size) for size in shape)
        self.data = data if isinstance(data, array) and data.typecode == "f" else array("f", data)
        if len(self.data) != math.prod(self.shape):
            raise ValueError(f"a RawTensor of shape {self.shape} has {math.prod(self.shape)} elements, not {len(self.data)}")

    def __repr__(self) -> str:
        return f"RawTensor(shape={self.shape})"


def read_frame(stream: BinaryIO) -> tuple[int, dict[str, Any], memoryview] | None:
    """Type, header and payload; None at the end. Raises EOFError or ValueError for a broken one."""
    first = stream.read(LENGTH.size)
    if not first:
        return None
    (length,) = LENGTH.unpack(first)
    if not HEAD.size <= length <= LARGEST:
        raise ValueError(f"a frame of {length} bytes")
    body = stream.read(length)
    if len(body) < length:
        raise EOFError("the end in the middle of a frame")
    kind, header_length = HEAD.unpack_from(body)
    start = HEAD.size + header_length
    if start > length:
        raise ValueError(f"a header of {header_length} bytes in a frame of {length}")
    return kind, json.loads(body[HEAD.size : start]) if header_length else {}, memoryview(body)[start:]


def write_frame(stream: BinaryIO, kind: int, header: dict[str, Any], payload: list[Any] | None = None) -> None:
    text = json.dumps(header).encode()
    chunks = [memoryview(chunk).cast("B") for chunk in payload or []]
    length = HEAD.size + len(text) + sum(map(len, chunks))
    if length > LARGEST:
        raise WorkerError("runtime", f"the outputs take {length} bytes, more than a frame holds ({LARGEST})")
    stream.write(LENGTH.pack(length) + HEAD.pack(kind, len(text)) + text)
    stream.writelines(chunks)
    stream.flush()


def decode(header: dict[str, Any], payload: memoryview, tensor_format: str) -> dict[str, Any]:
    """The inputs. Raises WorkerError where header and payload do not agree."""
    inputs: dict[str, Any] = {}
    offset = 0
    for tensor in header.get("tensors", []):
        name, shape = str(tensor["name"]), [int(size) for size in tensor["shape"]]
        if tensor.get("dtype", "f32") != "f32":
            raise WorkerError("invalid_input", f"tensor {name}: dtype {tensor['dtype']} is not f32")
        end = offset + 4 * math.prod(shape)
        if end > len(payload):
            raise WorkerError("invalid_input", f"tensor {name} goes beyond the payload")
        inputs[name] = _from_bytes(payload[offset:end], shape, tensor_format)
        offset = end
    if offset != len(payload):
        raise WorkerError("invalid_input", f"{len(payload) - offset} bytes behind the last tensor")
    return inputs


def _from_bytes(data: memoryview, shape: list[int], tensor_format: str) -> Any:
    if tensor_format == "numpy":
        return _numpy().frombuffer(data, "<f4").reshape(shape)
    values = array("f")
    values.frombytes(data)
    return RawTensor(shape, values if sys.byteorder == "little" else _swapped(values))


def encode(outputs: Any, rows: int | None) -> tuple[dict[str, Any], list[Any]]:
    """Header and payload of an answer. Raises WorkerError where it is none; `rows`: what axis 0 of each output must be."""
    if not isinstance(outputs, dict) or not outputs:
        raise WorkerError("runtime", f"predict() must return a dict of tensors, not {type(outputs).__name__}")
    tensors, chunks = [], []
    for name, value in outputs.items():
        if not isinstance(name, str):
            raise WorkerError("runtime", f"names of outputs must be str, not {type(name).__name__}")
        shape, data = _to_floats(name, value)
        if rows is not None and shape[:1] != [rows]:
            raise WorkerError("runtime", f"output {name} has shape {shape}, and axis 0 of the inputs is {rows}")
        tensors.append({"name": name, "shape": shape, "dtype": "f32"})
        chunks.append(data)
    return {"tensors": tensors}, chunks


def _to_floats(name: str, value: Any) -> tuple[list[int], Any]:
    if isinstance(value, RawTensor):
        return list(value.shape), value.data if sys.byteorder == "little" else _swapped(value.data)
    try:
        if hasattr(value, "detach") and hasattr(value, "cpu"):  # PyTorch's
            value = value.detach().cpu().numpy()
        floats = _numpy().ascontiguousarray(value, "<f4")
    except WorkerError:
        raise
    except Exception as error:
        raise WorkerError("runtime", f"output {name} cannot be made an array of 32-bit floats: {error}") from error
    return list(floats.shape), floats


def _swapped(values: array[float]) -> array[float]:
    swapped = array("f", values)
    swapped.byteswap()
    return swapped


def _numpy() -> Any:
    try:
        import numpy as np  # noqa: PLC0415 - only for models that want it
    except ImportError as error:
        raise WorkerError("load", 'tensor_format "numpy" needs NumPy: install it, or set "raw" in snooze_model.json') from error
    return np


def kind_of(error: BaseException) -> str:
    if isinstance(error, WorkerError):
        return error.kind
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "out of memory" in str(error).lower():
        return "oom"
    return "invalid_input" if isinstance(error, (ValueError, KeyError)) else "runtime"


def load_model(directory: str, entrypoint: str, class_name: str, device: str) -> tuple[Any, str]:
    """The model, loaded, and the device that it was told."""
    path = os.path.join(directory, entrypoint)  # noqa: PTH118 - pathlib would be the only import of it
    sys.path.insert(0, directory)
    spec = importlib.util.spec_from_file_location("snooze_user_model", path)
    if spec is None or spec.loader is None:
        raise WorkerError("load", f"{entrypoint} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if not hasattr(module, class_name):
        raise WorkerError("load", f"{entrypoint} defines no class {class_name}")
    model = getattr(module, class_name)()
    for method in ("load", "predict"):
        if not callable(getattr(model, method, None)):
            raise WorkerError("load", f"class {class_name} of {entrypoint} has no method {method}()")
    device = _resolved(device)
    model.load(directory, device)
    return model, device


def _resolved(device: str) -> str:
    """What "auto" is, by PyTorch if the model has imported it."""
    torch = sys.modules.get("torch")
    if device != "auto" or torch is None:
        return "cpu" if device == "auto" else device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if hasattr(torch.backends, "mps") and torch.backends.mps.is_available() else "cpu"


def serve(model: Any, tensor_format: str, reader: BinaryIO, writer: BinaryIO) -> None:
    """Answer until SHUTDOWN or the end of `reader`."""
    while (frame := read_frame(reader)) is not None:
        kind, header, payload = frame
        if kind == SHUTDOWN:
            return
        try:
            if kind != INFER:
                raise WorkerError("runtime", f"no frame of type {kind} is known")
            inputs = decode(header, payload, tensor_format)
            sizes = {int(tensor["shape"][0]) for tensor in header.get("tensors", []) if tensor.get("shape")}
            answer = encode(model.predict(inputs), sizes.pop() if len(sizes) == 1 else None)
        except Exception as error:  # noqa: BLE001 - whatever a model raises is its answer
            traceback.print_exc()
            write_frame(writer, ERROR, {"kind": kind_of(error), "message": f"{type(error).__name__}: {error}"})
        else:
            write_frame(writer, RESULT, *answer)


def own_streams() -> tuple[BinaryIO, BinaryIO]:
    """stdin and stdout for frames alone: what the model prints goes to stderr, and it has nothing to read."""
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return reader, writer


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-dir", required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--entrypoint", default="snooze_model.py")
    parser.add_argument("--class", dest="class_name", default="Model")
    parser.add_argument("--tensor-format", choices=("numpy", "raw"), default="numpy")
    options = parser.parse_args()
    reader, writer = own_streams()
    try:
        if options.tensor_format == "numpy":
            _numpy()
        model, device = load_model(os.path.abspath(options.model_dir), options.entrypoint, options.class_name, options.device)  # noqa: PTH100
    except BaseException as error:  # noqa: BLE001 - sys.exit too
        traceback.print_exc()
        kind = "oom" if kind_of(error) == "oom" else "load"
        write_frame(writer, ERROR, {"kind": kind, "message": f"{type(error).__name__}: {error}"})
        return 1
    write_frame(writer, READY, {"protocol": PROTOCOL, "info": {"python": sys.version.split()[0], "device": device}})
    serve(model, options.tensor_format, reader, writer)
    return 0


def stand_in() -> None:
    """Be `snoozeml.worker` for the model's code, so that its classes are the ones known here."""
    package = types.ModuleType("snoozeml")
    package.__path__ = []
    worker = sys.modules["__main__"]
    package.worker = worker  # type: ignore[attr-defined]
    sys.modules["snoozeml"], sys.modules["snoozeml.worker"] = package, worker


if __name__ == "__main__":
    here = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - as above
    sys.path = [path for path in sys.path if os.path.realpath(path) != here]  # its modules have common names
    try:
        from snoozeml.worker import main  # the SDK's own worker goes first
    except ImportError:
        stand_in()
    sys.exit(main())
