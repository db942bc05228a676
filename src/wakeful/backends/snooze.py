"""SnoozeML's worker models, protocol v1: the model runs in a process of its own, which is asked in frames over its stdin and stdout.

    u32 length | u8 type | u32 header length | header, JSON | FP32 tensors, little-endian, one behind the other

The replica is the daemon's side of that: it translates, lives as long as its worker, and ends as that has ended.
"""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from wakeful.backends.base import LoadOptions, Plain
from wakeful.backends.python_manifest import NATIVE_CODE, SNOOZE_CODE, SNOOZE_MANIFEST, Manifest
from wakeful.errors import ExecutionFailed, InvalidInput, OutOfMemory, Unavailable, WakefulError
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.tensors import element_count
from wakeful.worker import snooze_worker
from wakeful.worker.snooze_worker import ERROR, INFER, LARGEST, PROTOCOL, READY, RESULT, SHUTDOWN

HEAD = struct.Struct("<IBI")
JOIN_LIMIT = 64 * 1024
"""Bytes up to which a frame is put together and written at once."""
PARTING_SECONDS = 1.0
LISTED = 5
"""Names of files in an error."""
LAST_LINES = 5
"""Of what a worker has printed that ended before it was ready."""

SIGNATURE = Signature((), (), "snoozeml_worker", undeclared=True)


class Frame(NamedTuple):
    type: int
    header: dict[str, Any]
    payload: memoryview


class WorkerEnded(Exception):
    """It closed its end, or said what is no frame."""


class SnoozeWorker(Plain):
    """One worker process that has loaded its model."""

    forkable = False
    signature = SIGNATURE

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it and wait until it is ready. Raises Unavailable or OutOfMemory."""
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, env=env,
            )
        except OSError as error:
            raise Unavailable(f"the interpreter {command[0]} cannot be started: {error.strerror}") from None
        self._outputs: tuple[TensorSpec, ...] = ()
        self._printed: deque[str] = deque(maxlen=LAST_LINES)
        self._printing = threading.Thread(target=self._pass_on, daemon=True)
        self._printing.start()
        try:
            frame = self._read()
        except WorkerEnded as error:
            raise Unavailable(f"the worker {error} before it was ready{self._last_words()}") from None
        if frame.type == ERROR:
            raise _load_fault(frame.header)
        if frame.type != READY or frame.header.get("protocol") != PROTOCOL:
            raise Unavailable(f"the worker speaks another protocol than version {PROTOCOL}: {frame.header}")
        info = frame.header.get("info")
        self.device = str(info.get("device", "cpu")) if isinstance(info, dict) else "cpu"

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._outputs

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        for name, array in inputs.items():
            if array.dtype != np.dtype("<f4"):
                raise InvalidInput.field(f"input {name}: datatype", "FP32, as SnoozeML's workers take nothing else", array.dtype)
        tensors = [{"name": name, "shape": array.shape, "dtype": "f32"} for name, array in inputs.items()]
        try:
            self._write(INFER, {"tensors": tensors}, [array.reshape(-1).view(np.uint8).data for array in inputs.values() if array.size])
            frame = self._read()
        except WorkerEnded as error:
            self._follow(str(error))
        if frame.type == ERROR:
            raise _run_fault(frame.header)
        try:
            outputs = _tensors(frame)
        except (KeyError, TypeError, ValueError) as error:
            raise ExecutionFailed(f"the worker's answer cannot be read: {error}") from error
        self._outputs = tuple(TensorSpec(name, "FP32", array.shape) for name, array in outputs.items())
        return list(outputs.values())

    def close(self) -> None:
        with suppress(WorkerEnded, subprocess.TimeoutExpired):
            self._write(SHUTDOWN, {}, [])
            self._process.wait(PARTING_SECONDS)

    def _write(self, type_: int, header: Mapping[str, Any], payload: Sequence[memoryview]) -> None:
        text = json.dumps(header, separators=(",", ":")).encode()
        length = HEAD.size - 4 + len(text) + sum(map(len, payload))
        if length > LARGEST:
            raise InvalidInput(f"the inputs take {length} bytes, more than a frame of a SnoozeML worker holds ({LARGEST})")
        head = HEAD.pack(length, type_, len(text)) + text
        chunks = [memoryview(b"".join([head, *payload]))] if length <= JOIN_LIMIT else [memoryview(head), *payload]
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        try:
            for chunk in chunks:
                written = 0
                while written < len(chunk):
                    written += os.write(descriptor, chunk[written:])
        except BrokenPipeError:
            raise WorkerEnded(self._ending()) from None

    def _read(self) -> Frame:
        length, type_, header_length = HEAD.unpack(self._exactly(HEAD.size))
        if not HEAD.size - 4 + header_length <= length <= LARGEST:
            self._process.kill()
            raise WorkerEnded("wrote something else than frames to its stdout")
        header = self._exactly(header_length)
        payload = self._exactly(length - (HEAD.size - 4) - header_length)
        try:
            decoded = json.loads(header) if header else {}
        except ValueError:
            decoded = None
        if not isinstance(decoded, dict):
            self._process.kill()
            raise WorkerEnded("wrote a frame without a header that is JSON")
        return Frame(type_, decoded, memoryview(payload))

    def _exactly(self, size: int) -> bytearray:
        assert self._process.stdout is not None
        data = bytearray(size)
        view, got = memoryview(data), 0
        while got < size:
            count = self._process.stdout.readinto(view[got:])  # type: ignore[attr-defined]  # it is raw, as bufsize is 0
            if not count:
                raise WorkerEnded(self._ending())
            got += count
        return data

    def _ending(self) -> str:
        try:
            status = self._process.wait(PARTING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return "closed its stdout"
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"

    def _follow(self, reason: str) -> NoReturn:
        """Without its worker this process is of no use. It ends in the same way, so that whoever sees it knows why."""
        sys.stderr.write(f"the worker {reason} in a run\n")
        status = self._process.wait()
        if status < 0:
            signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
            os.kill(os.getpid(), -status)
        os._exit(max(status, 1))

    def _pass_on(self) -> None:
        """What it prints, for as long as it lives: nobody may be held up by a full pipe."""
        assert self._process.stderr is not None
        with open(self._process.stderr.fileno(), "rb", closefd=False) as lines:
            for line in lines:
                text = line.decode("utf-8", "replace").rstrip("\n")
                self._printed.append(text)
                sys.stderr.write(text + "\n")

    def _last_words(self) -> str:
        self._printing.join(PARTING_SECONDS)
        lines = [line for line in self._printed if line.strip()]
        return f": {lines[-1].strip()}" if lines else ""


def open_worker(directory: Path, manifest: Manifest, options: LoadOptions) -> SnoozeWorker:
    """Start the worker of the model in a directory. Raises Unavailable or OutOfMemory."""
    if not (directory / manifest.code).is_file():
        raise Unavailable(_nothing_to_run(directory, manifest))
    command = [
        manifest.python, "-u", "-B", snooze_worker.__file__, "--model-dir", str(directory), "--device", options.device,
        "--entrypoint", manifest.code, "--class", manifest.class_name, "--tensor-format", manifest.tensor_format,
    ]
    return SnoozeWorker(command, {**os.environ, **manifest.environment(options.threads)})


def _nothing_to_run(directory: Path, manifest: Manifest) -> str:
    """Which may be a model of another kind that somebody calls Python."""
    found = sorted(entry.name for entry in directory.iterdir())
    there = ", ".join(found[:LISTED]) + (f" and {len(found) - LISTED} more" if len(found) > LISTED else "") if found else "nothing"
    if manifest.code != SNOOZE_CODE:
        return f"there is no {manifest.code}, which {SNOOZE_MANIFEST} names as its entrypoint, in the model's directory: it has {there}"
    return f"a Python model is a directory with {NATIVE_CODE} or {SNOOZE_CODE}, and this one has {there}"


def _tensors(frame: Frame) -> dict[str, np.ndarray]:
    """Raises KeyError, TypeError or ValueError for what is no answer."""
    if frame.type != RESULT:
        raise ValueError(f"a frame of type {frame.type}")
    arrays, offset = {}, 0
    for tensor in frame.header["tensors"]:
        shape = tuple(int(size) for size in tensor["shape"])
        count = element_count(shape)
        arrays[str(tensor["name"])] = np.frombuffer(frame.payload, "<f4", count, offset).reshape(shape)
        offset += 4 * count
    return arrays


def _load_fault(header: Mapping[str, Any]) -> WakefulError:
    message = str(header.get("message", "it does not say why"))
    return OutOfMemory(f"out of memory while loading: {message}") if header.get("kind") == "oom" else Unavailable(message)


def _run_fault(header: Mapping[str, Any]) -> WakefulError:
    message = str(header.get("message", "it does not say why"))
    match header.get("kind"):
        case "invalid_input":
            return InvalidInput(message)
        case "oom":
            return OutOfMemory(f"out of memory: {message}")
        case _:
            return ExecutionFailed(message)
