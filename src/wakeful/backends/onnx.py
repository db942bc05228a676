"""ONNX Runtime as a backend.

Imported in the nursery before anything is forked: importing this module makes no session and starts no thread.
"""

import ctypes
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.random import default_rng

from wakeful.backends import onnx_file, trial
from wakeful.backends.base import LoadOptions, Plain, told
from wakeful.backends.onnx_errors import load_error, run_error
from wakeful.errors import InvalidInput, Unavailable
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.tensors import element_count

LIBRARY = f"onnxruntime {ort.__version__}"

MODEL, WEIGHTS = "model.onnx", "weights.bin"
"""Files of a prepared copy. The second is absent when the model has no weight worth a mapping."""

DRAFT = "draft.json"
"""Another, where a first answer comes sooner from a session that does not pre-pack: the figures that say so."""
DRAFT_GAIN, DRAFT_SECONDS = 0.75, 0.010
"""A draft is worth having if its first answer takes at most this share of the time, and comes so much sooner."""
LINGER_SECONDS = 0.1
"""Longest wait for the system to have done with a thread that has ended."""

_DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(bfloat16)": "BF16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}
_ONNX_BFLOAT16 = 16
"""TensorProto.BFLOAT16."""

_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD, _LARGEST_THRESHOLD = -3, 32 * 1024 * 1024
"""Options of glibc's mallopt, and the highest value that the second takes."""

_FATAL = 4
"""Log severity. ONNX Runtime logs every error that it also raises, so that each bad request would leave a line (with paths) on stderr."""


class OnnxBackend(Plain):
    """One session. See `backends.base.Backend`."""

    def __init__(
        self, session: ort.InferenceSession, *, device: str, forkable: bool, prepared: bool,
        better: Callable[[], ort.InferenceSession | None] | None = None,
    ) -> None:
        """`better` makes the session that is to replace this one; None where this one stays."""
        self.signature = _signature(session)
        self.device = device
        self.forkable = forkable
        self.prepared = prepared
        self.draft = better is not None
        self._better = better
        self._improving: threading.Thread | None = None
        self._session = session
        self._bf16_inputs = frozenset(spec.name for spec in self.signature.inputs if spec.datatype == "BF16")
        self._run = self._runner()

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        try:
            return self._run(inputs)
        except Exception as error:  # whatever a model does wrong is an answer to its caller
            if self.draft:  # a draft's failure is no answer
                self.settle()
                return self.run(inputs)
            raise run_error(error) from error

    def improve(self) -> None:
        if self._better is not None and self._improving is None:
            self._improving = threading.Thread(target=self._exchange, args=(self._better,))
            try:
                self._improving.start()
            except RuntimeError:  # the system has no thread left
                self._exchange(self._better)
                self._better = self._improving = None

    def settle(self) -> None:
        if self._better is None:
            return
        self.improve()
        if self._improving is not None:
            self._improving.join()
        self._better = self._improving = None
        end = time.monotonic() + LINGER_SECONDS
        while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < end:  # a joined thread may need a moment more to be gone
            time.sleep(0.0002)

    def _exchange(self, better: Callable[[], ort.InferenceSession | None]) -> None:
        session = better()
        if session is not None:  # else there was no memory for it, and the draft, which answers as well, stays
            self._session = session
        self.draft = False
        _return_free_memory()

    def _runner(self) -> Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]:
        if any(spec.datatype == "BF16" for spec in self.signature.outputs):
            if any(spec.datatype == "BYTES" for spec in self.signature.inputs):
                raise Unavailable("ONNX Runtime cannot return BF16 from a model that takes BYTES: cast the output to FP32 in the model")
            return self._run_values
        return self._run_arrays

    def _run_arrays(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        feed: dict[str, Any] = dict(inputs)
        for name in self._bf16_inputs & feed.keys():
            feed[name] = _bf16_value(feed[name])
        outputs: list[np.ndarray] = self._session.run(None, feed)
        return outputs

    def _run_values(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """As above with ONNX Runtime's own values, the only form in which it gives BF16 away."""
        if missing := [spec.name for spec in trial.required(self.signature) if spec.name not in inputs]:
            raise InvalidInput(f"inputs missing: {', '.join(missing)}")  # the library would go on with nothing in their place
        feed = {
            name: _bf16_value(array) if name in self._bf16_inputs else ort.OrtValue.ortvalue_from_numpy(array) for name, array in inputs.items()
        }
        return [_array(value) for value in self._session.run_with_ort_values(None, feed)]


def open_model(path: str, options: LoadOptions) -> OnnxBackend:
    """Open the ONNX file at `path`, by its prepared copy where there is one that works.

    Raises Unavailable with the reason in a sentence, or OutOfMemory.
    """
    device = _device(options.device)
    threads = max(1, options.threads)
    session, prepared, better = None, False, None
    if options.prepared and device == "cpu":  # a copy is optimised for the CPU
        if (Path(options.prepared) / DRAFT).exists():
            _one_heap()
            session = _prepared_session(options.prepared, threads, draft=True)
            better = partial(_prepared_session, options.prepared, threads) if session is not None else None
        session = session or _prepared_session(options.prepared, threads)
        prepared = session is not None
    try:
        if session is None:
            _reuse_freed_memory()
            session = _as_shipped(path, _session_options(threads), device)
            _return_free_memory()
        # ONNX Runtime falls back to the CPU without an error when the device does not work.
        on_device = device == "cpu" or "CUDAExecutionProvider" in session.get_providers()
        if not on_device and options.device != "auto":
            raise Unavailable(f"{options.device} cannot be used: {LIBRARY} offers CUDA, but could not start it on this device")
        device = device if on_device else "cpu"
        return OnnxBackend(session, device=device, forkable=device == "cpu" and threads == 1, prepared=prepared, better=better)
    except Exception as error:  # the library has no common base of its own
        raise load_error(error, path) from error


def prepare(path: str, directory: str) -> None:
    """Write a copy of the model into `directory` (existing, empty) that loads by mmap: optimised graph, external and pre-packed weights.

    The copy is flushed to the disk, because dirty pages count as private memory of whoever maps them. Raises Unavailable when it cannot be
    made or does not answer like the original, or OutOfMemory; the directory's content is then worthless.
    """
    options = _session_options(threads=1)
    options.optimized_model_filepath = str(Path(directory) / MODEL)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", WEIGHTS)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")
    try:
        original = OnnxBackend(_as_shipped(path, options, "cpu"), device="cpu", forkable=False, prepared=False)
    except Exception as error:  # the library has no common base of its own
        raise load_error(error, path) from error
    onnx_file.keep_inputs(Path(directory) / MODEL, [spec.name for spec in original.signature.inputs])
    _flush(directory)
    session = _prepared_session(directory, threads=1)
    if session is None:
        raise Unavailable(f"the prepared copy of {Path(path).name} does not load")
    copy = OnnxBackend(session, device="cpu", forkable=False, prepared=True)
    if copy.signature != original.signature:
        raise Unavailable(f"the prepared copy of {Path(path).name} has another signature")
    recipe, _ = trial.find_recipe(original)
    if recipe is None:  # it cannot be tried
        return
    inputs = trial.sample(original.signature, recipe, trial.SIGNED, 2, default_rng(0))
    if (output := _difference(original, copy, inputs, trial.SAME_SHAPES)) is not None:
        raise Unavailable(f"the prepared copy of {Path(path).name} answers differently in output {output}")
    del copy, session
    _try_draft(original, directory, inputs)


def _one_heap() -> None:
    """Let a second thread share the first one's heap: one of its own would stay behind with what the better session holds (2 MB)."""
    _set_malloc_option(_M_ARENA_MAX, 1)


def _set_malloc_option(option: int, value: int) -> None:
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):  # glibc has it, musl has not
        set_option(option, value)


def _reuse_freed_memory() -> None:
    """Let the C library take even large pieces from what was freed before. A load copies each weight several times, and by default each copy of
    more than 128 KB is mapped, filled with zeros page by page, and unmapped: 290 ms for 90 MB of weights instead of 195. A prepared copy does the
    opposite, it asks for much that it never touches: 87 ms of CPU with the default, 140 with this."""
    _set_malloc_option(_M_MMAP_THRESHOLD, _LARGEST_THRESHOLD)


def _return_free_memory() -> None:
    """Give the system what loading has freed: the C library would keep it, about as much again as half of the weights."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def providers() -> tuple[str, ...]:
    """Execution providers that this build of ONNX Runtime has; whether their device is there shows at load."""
    return tuple(ort.get_available_providers())


def _session_options(threads: int) -> ort.SessionOptions:
    """Everything explicit: by default each session takes all cores of the machine, whatever the container has, and burns them while idle."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = _FATAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return options


def _as_shipped(path: str, options: ort.SessionOptions, device: str) -> ort.InferenceSession:
    """A session on the file itself; on an edited copy in memory where it gives maps (skl2onnx's ZipMap), which no protocol here can carry."""
    session = _session(path, options, device)
    if not any("map(" in output.type for output in session.get_outputs()):
        return session
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(Path(path).parent))
    return _session(onnx_file.without_maps(Path(path).read_bytes()), options, device)


def _session(model: str | bytes, options: ort.SessionOptions, device: str) -> ort.InferenceSession:
    wanted: list[Any] = ["CPUExecutionProvider"]
    if device != "cpu":
        wanted.insert(0, ("CUDAExecutionProvider", {"device_id": device.partition(":")[2] or "0"}))
    return ort.InferenceSession(model, options, providers=wanted, enable_fallback=0)


def _prepared_session(directory: str, threads: int, *, draft: bool = False) -> ort.InferenceSession | None:
    """A session on the prepared copy, or None when it is broken, foreign or gone: it is a cache, and the original is there.

    A draft is quick to create because it uses the weights as they are, and slower to run for the same reason.
    """
    options = _session_options(threads)
    if draft:
        options.add_session_config_entry("session.disable_prepacking", "1")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # has been done
    try:
        return _session(str(Path(directory) / MODEL), options, "cpu")
    except Exception:  # noqa: BLE001 - the library has no common base of its own; the original's error is the one to report
        return None


def _device(wanted: str) -> str:
    """cpu or cuda[:N], from auto, cpu or cuda[:N]."""
    if wanted == "cpu":
        return wanted
    offered = "CUDAExecutionProvider" in providers()
    if wanted == "auto":
        return "cuda" if offered else "cpu"
    if not re.fullmatch(r"cuda(:\d+)?", wanted):
        raise Unavailable(f'device "{wanted}" is unknown: auto, cpu, cuda or cuda:N')
    if not offered:
        raise Unavailable(f"{wanted} was asked for, but {LIBRARY} offers only {', '.join(providers())}: install onnxruntime-gpu or set device = auto")
    return wanted


def _signature(session: ort.InferenceSession) -> Signature:
    """Inputs and outputs as declared. Initializers that a caller may override are optional inputs, behind the others.

    ONNX Runtime gives [] both for a scalar and for a tensor of unknown rank, and takes any shape for either.
    """
    inputs = [_spec("input", node) for node in session.get_inputs()]
    inputs += [_spec("input", node, optional=True) for node in session.get_overridable_initializers()]
    columns = _columns(session.get_modelmeta().custom_metadata_map)
    return Signature(tuple(inputs), tuple(_spec("output", node, columns=columns.get(node.name, ())) for node in session.get_outputs()))


def _columns(metadata: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """What the columns of outputs stand for, by output: of a model that `onnx_file` has edited."""
    noted = metadata.get(onnx_file.COLUMNS)
    return {} if noted is None else {output: told(map(str, names)) for output, names in json.loads(noted).items()}


def _spec(kind: str, node: Any, *, optional: bool = False, columns: tuple[str, ...] = ()) -> TensorSpec:
    datatype = _DATATYPES.get(node.type)
    if datatype is None:
        advice = ""
        if "map(" in node.type:
            advice = "; give each feature an input of its own" if kind == "input" else "; convert it with options={'zipmap': False}"
        raise Unavailable(f"cannot be served: {kind} {node.name} is {node.type}, not a tensor of the Open Inference Protocol{advice}")
    shape = tuple(size if isinstance(size, str) or (isinstance(size, int) and size >= 0) else None for size in node.shape)
    return TensorSpec(node.name, datatype, shape, optional, columns)


def _bf16_value(array: np.ndarray) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array).reshape(array.shape), _ONNX_BFLOAT16)


def _array(value: ort.OrtValue) -> np.ndarray:
    """A copy of a value's elements; BF16, which NumPy lacks, as uint16."""
    if value.data_type() != "tensor(bfloat16)":
        array: np.ndarray = value.numpy()
        return array
    shape = tuple(value.shape())
    raw = ctypes.string_at(value.data_ptr(), 2 * element_count(shape)) if element_count(shape) else b""
    return np.frombuffer(raw, "<u2").reshape(shape)


def _flush(directory: str) -> None:
    for file in (*Path(directory).iterdir(), Path(directory)):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _difference(original: OnnxBackend, copy: OnnxBackend, inputs: trial.Arrays, rounding: Mapping[str, float]) -> str | None:
    """Name of the first output in which the two answer differently; None if they agree, or if that cannot be told."""
    first, second, copied = original.run(inputs), original.run(inputs), copy.run(inputs)
    for spec, one, other, got in zip(original.signature.outputs, first, second, copied, strict=True):
        chance = not trial.agree(spec, other, one, trial.SAME_SHAPES)  # a model that draws random numbers
        if not chance and not trial.agree(spec, got, one, rounding):
            return spec.name
    return None


def _try_draft(original: OnnxBackend, directory: str, inputs: trial.Arrays) -> None:
    """Leave a note in the copy if a draft answers like the original and clearly sooner than the pre-packed session. That depends on the kernels: of
    a convolutional network little is pre-packed, of a transformer half of the weights."""
    try:
        drafts, full = (min(_first_answer(directory, inputs, draft=draft) for _ in range(3)) for draft in (True, False))
        session = _prepared_session(directory, threads=1, draft=True)
        if session is None or drafts > min(DRAFT_GAIN * full, full - DRAFT_SECONDS):
            return
        backend = OnnxBackend(session, device="cpu", forkable=False, prepared=True)
        if _difference(original, backend, inputs, trial.OTHER_SHAPES) is None:
            (Path(directory) / DRAFT).write_text(json.dumps({"draft_seconds": drafts, "prepacked_seconds": full}))
    except Exception:  # noqa: BLE001 - a kernel that cannot do without pre-packing raises whatever it likes; the copy is good without a draft
        return


def _first_answer(directory: str, inputs: trial.Arrays, *, draft: bool) -> float:
    """Seconds to create a session and have its first answer."""
    began = time.perf_counter()
    session = _prepared_session(directory, threads=1, draft=draft)
    if session is None:
        return math.inf
    OnnxBackend(session, device="cpu", forkable=False, prepared=True).run(inputs)
    return time.perf_counter() - began
