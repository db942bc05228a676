"""Worker models of SnoozeML: the SDK's own scaffolds and worker, and ours where the SDK is not installed, by themselves and behind the daemon."""

import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from snoozeml import SnoozeClient, exceptions, scaffold_worker
from snoozeml.worker import MSG_ERROR, MSG_INFER, MSG_READY, MSG_RESULT, MSG_SHUTDOWN, read_frame, write_frame

from tests.daemon import Daemon, alive, running, wait_until
from wakeful.worker import snooze_worker

ROW = np.array([[1, 2, 3, 4]], np.float32)
OTHER_PYTHON = Path("/usr/bin/python3")
"""An interpreter in which nothing is installed."""

WITHOUT_SDK = f"import runpy, sys; sys.modules['snoozeml'] = None; runpy.run_path({snooze_worker.__file__!r}, run_name='__main__')"
WORKERS = {"the SDK's": [snooze_worker.__file__], "ours": ["-c", WITHOUT_SDK]}
"""Arguments of the interpreter that start each."""

CODE = """
import ctypes, os, sys
import numpy as np
from snoozeml.worker import RawTensor, WorkerError

class OutOfMemoryError(RuntimeError): pass

class Model:
    def load(self, model_dir, device):
        print("loading for", device, model_dir)
        print("not a frame", file=sys.__stdout__, flush=True)
        self.device = device

    def predict(self, inputs):
        name, x = next(iter(inputs.items()))
        print("predicting", name)
        if name == "value": raise ValueError("too bad")
        if name == "key": raise KeyError("gone")
        if name == "own": raise WorkerError("invalid_input", "said by the model")
        if name == "memory": raise MemoryError()
        if name == "card": raise OutOfMemoryError("card is full")
        if name == "text": raise RuntimeError("CUDA out of memory, sorry")
        if name == "runtime": raise RuntimeError("broken")
        if name == "rows": return {"y": x[:0]}
        if name == "nothing": return {}
        if name == "object": return {"y": object()}
        if name == "number": return {3: x}
        if name == "double": return {"y": x.astype("f8") * 2, "z": RawTensor((len(x),), range(len(x)))}
        if name == "exit": os._exit(9)
        if name == "crash": ctypes.string_at(0)
        if name == "environment": return {"y": np.full(len(x), float(os.environ["FACTOR"]))}
        return {"y": x}
"""

REFUSALS = {
    "value": "invalid_input", "key": "invalid_input", "own": "invalid_input", "memory": "oom", "card": "oom", "text": "oom",
    "runtime": "runtime", "rows": "runtime", "nothing": "runtime", "object": "runtime", "number": "runtime",
}
"""Name of the input to the kind of error that the protocol has for what the model then does."""


def scaffold(path: Path, code: str | None = CODE, **more: Any) -> Path:
    return scaffold_worker(path, model_code=code, verify=False, **more)


# ── a worker by itself ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def worker(start: list[str], directory: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-u", "-B", *start, "--model-dir", str(directory), "--device", "cpu", *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def asked(process: subprocess.Popen[bytes], kind: int, header: dict[str, Any], payload: bytes = b"") -> tuple[int, dict[str, Any], bytes]:
    write_frame(process.stdin, kind, header, [payload])
    return told(process)


def told(process: subprocess.Popen[bytes]) -> tuple[int, dict[str, Any], bytes]:
    frame = read_frame(process.stdout)
    assert frame is not None
    return frame[0], frame[1], bytes(frame[2])


def tensor(name: str, *shape: int, **more: str) -> dict[str, Any]:
    return {"name": name, "shape": shape, **more}


@pytest.fixture(params=WORKERS, scope="module")
def process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """One of both, ready."""
    with worker(WORKERS[request.param], scaffold(tmp_path_factory.mktemp("worker"))) as process:
        kind, header, _ = told(process)
        assert (kind, header) == (MSG_READY, {"protocol": 1, "info": {"python": sys.version.split()[0], "device": "cpu"}})
        yield process


def test_tensors_go_there_and_back(process: subprocess.Popen[bytes]) -> None:
    header = {"tensors": [tensor("double", 2, 1, dtype="f32", more="ignored"), tensor("other", 2)]}
    kind, header, payload = asked(process, MSG_INFER, header, struct.pack("<4f", 1, 2, 3, 4))
    assert kind == MSG_RESULT
    assert header == {"tensors": [{"name": "y", "shape": [2, 1], "dtype": "f32"}, {"name": "z", "shape": [2], "dtype": "f32"}]}
    assert payload == struct.pack("<4f", 2, 4, 0, 1)


@pytest.mark.parametrize(("name", "expected"), REFUSALS.items())
def test_kinds_of_errors(process: subprocess.Popen[bytes], name: str, expected: str) -> None:
    kind, header, payload = asked(process, MSG_INFER, {"tensors": [tensor(name, 1)]}, bytes(4))
    assert (kind, header["kind"], payload) == (MSG_ERROR, expected, b"")
    assert header["message"]


@pytest.mark.parametrize(("kind", "header", "payload", "expected"), [
    (MSG_INFER, {"tensors": [tensor("x", 2)]}, bytes(4), "invalid_input"),
    (MSG_INFER, {"tensors": [tensor("x", 1)]}, bytes(8), "invalid_input"),
    (MSG_INFER, {"tensors": [tensor("x", 1, dtype="i64")]}, bytes(8), "invalid_input"),
    (MSG_INFER, {"tensors": [{"name": "x"}]}, b"", "invalid_input"),
    (77, {}, b"", "runtime"),
])
def test_frames_that_are_wrong_are_errors_and_it_goes_on(
    process: subprocess.Popen[bytes], kind: int, header: dict[str, Any], payload: bytes, expected: str,
) -> None:
    answer, error, _ = asked(process, kind, header, payload)
    assert (answer, error["kind"]) == (MSG_ERROR, expected)
    assert asked(process, MSG_INFER, {"tensors": [tensor("x", 1)]}, bytes(4))[0] == MSG_RESULT


@pytest.mark.parametrize("start", WORKERS.values(), ids=WORKERS)
@pytest.mark.parametrize(("write", "status"), [
    (lambda stdin: write_frame(stdin, MSG_SHUTDOWN, {}), 0), (lambda stdin: None, 0), (lambda stdin: stdin.write(b"\xff\xff\xff\xff"), 1),
    (lambda stdin: stdin.write(b"\x09\0\0\0\x02"), 1),
], ids=["shutdown", "end", "broken", "cut"])
def test_how_it_ends(tmp_path: Path, start: list[str], write: Any, status: int) -> None:
    with worker(start, scaffold(tmp_path / "m", None, tensor_format="raw"), "--tensor-format", "raw") as process:
        told(process)
        assert process.stdin is not None
        write(process.stdin)
        process.stdin.close()
        assert process.wait(30) == status


@pytest.mark.parametrize("start", WORKERS.values(), ids=WORKERS)
@pytest.mark.parametrize(("code", "kind"), [
    ("import no_such_library", "load"), ("raise SystemExit(3)", "load"), ("x = 1", "load"), ("raise MemoryError", "oom"),
    ("class Model:\n    def load(self, d, e): pass", "load"),
])
def test_what_does_not_load(tmp_path: Path, start: list[str], code: str, kind: str) -> None:
    with worker(start, scaffold(tmp_path / "m", code)) as process:
        answer, header, _ = told(process)
        assert (answer, header["kind"]) == (MSG_ERROR, kind)
        assert process.wait(30) == 1


# ── behind the daemon ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    home = tmp_path_factory.mktemp("workers")
    models = home / "models"
    scaffold(models / "numpy", None)
    scaffold(models / "raw", None, tensor_format="raw")
    scaffold(models / "other", None, tensor_format="raw", python=str(OTHER_PYTHON))
    scaffold(models / "named", CODE.replace("class Model", "class Mine"), entrypoint="mine.py", class_name="Mine", env={"FACTOR": "2.5"})
    scaffold(models / "many")
    scaffold(models / "deadly")
    scaffold(models / "missing", "import no_such_library")
    scaffold(models / "lost", None, python="/no/such/python")
    scaffold(models / "leaves", "import os\nprint('farewell')\nos._exit(6)")
    scaffold(models / "bare", CODE)
    (models / "bare" / "snooze_model.json").unlink()
    scaffold(models / "badly")
    (models / "badly" / "snooze_model.json").write_text('{"tensor_format": "torch"}')
    (home / "models.toml").write_text(
        '[defaults]\nmax_replicas = 1\n[[models]]\nid = "many"\npath = "many"\n'
        'batching = "on"\nbatch_policy = "timer"\nmax_batch_delay_ms = 10000\nmax_batch_size = 3\n')
    with running(home, "--config", str(home / "models.toml"), "--models-dir", str(models), "--no-grpc") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[SnoozeClient]:
    with SnoozeClient(daemon.url) as client:
        yield client


@pytest.mark.parametrize(("model", "factor"), [("numpy", 1), ("raw", 2), pytest.param("other", 2, marks=pytest.mark.skipif(
    not OTHER_PYTHON.exists(), reason=f"{OTHER_PYTHON} is not there"))])
def test_what_the_sdk_scaffolds_is_served_to_its_client(client: SnoozeClient, model: str, factor: float) -> None:
    assert np.array_equal(client.infer(model, {"input": ROW})["output"], factor * ROW)


def test_names_and_environment_are_the_manifests(client: SnoozeClient) -> None:
    assert client.infer("named", {"environment": ROW})["y"].tolist() == [2.5]


def test_either_file_makes_it_a_model(client: SnoozeClient) -> None:
    assert np.array_equal(client.infer("bare", {"x": ROW})["y"], ROW)


def test_large_tensors(client: SnoozeClient) -> None:
    large = np.arange(300_000, dtype=np.float32).reshape(1, -1)
    assert np.array_equal(client.infer("bare", {"x": large})["y"], large)


STATUS = {"invalid_input": 400, "oom": 503, "runtime": 500}


@pytest.mark.parametrize(("name", "kind"), REFUSALS.items())
def test_errors_have_the_status_of_their_kind(daemon: Daemon, name: str, kind: str) -> None:
    status, answer = daemon.infer("bare", name, [1], [1])
    assert status == STATUS[kind], answer
    assert "Traceback" not in answer["error"]
    assert kind != "oom" or "out of memory" in answer["error"]


def test_the_clients_error_is_the_callers(client: SnoozeClient) -> None:
    with pytest.raises(exceptions.InvalidInputError, match="said by the model"):
        client.infer("bare", {"own": ROW})


def test_it_takes_32_bit_floats_alone(daemon: Daemon) -> None:
    status, answer = daemon.infer("bare", "x", [1], [1], "INT64")
    assert status == 400
    assert "input x: datatype: expected FP32" in answer["error"]


def test_prints_are_logged_and_break_nothing(daemon: Daemon, client: SnoozeClient) -> None:
    client.infer("bare", {"x": ROW})
    wait_until(lambda: "bare: predicting x" in daemon.log and "bare: not a frame" in daemon.log, "all is logged")


@pytest.mark.parametrize(("model", "words"), [
    ("missing", ["ModuleNotFoundError: No module named 'no_such_library'"]),
    ("lost", ["snooze_model.json", "the interpreter /no/such/python is not there"]),
    ("leaves", ["ended with status 6 before it was ready: farewell"]),
    ("badly", ['tensor_format must be "numpy" or "raw", got "torch"']),
])
def test_what_cannot_be_loaded_says_why(daemon: Daemon, model: str, words: list[str]) -> None:
    status, answer = daemon.infer(model, "x", [1], [1])
    assert status == 503
    assert all(word in answer["error"] for word in words), answer


def test_merged_where_it_is_told_so(daemon: Daemon) -> None:
    from tests.e2e.asking import ask_together, oip
    from tests.e2e.asking import tensor as oip_tensor

    answers = ask_together(daemon, [oip("many", oip_tensor("x", [1, 1], [number])) for number in range(3)])
    assert [answer.output("y") for answer in answers] == [[0], [1], [2]]
    assert daemon.metric("wakeful_batch_rows_count", model="many") == 1


@pytest.mark.parametrize(("name", "words"), [("exit", "status 9"), ("crash", "SIGSEGV")])
def test_one_that_ends_in_a_run_fails_its_caller_alone(daemon: Daemon, name: str, words: str) -> None:
    status, answer = daemon.infer("deadly", name, [1], [1])
    assert status == 500
    assert words in answer["error"]
    wait_until(lambda: daemon.infer("deadly", "x", [5], [1])[0] == 200, "it is back")


def workers_of(daemon: Daemon, model: str) -> list[int]:
    """Processes that run the worker of a model."""
    directory = str(daemon.directory / "models" / model).encode()
    return [pid for pid in daemon.children() if directory in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]


def test_one_that_is_killed_is_replaced_and_nothing_is_lost(daemon: Daemon) -> None:
    assert daemon.infer("raw", "x", [5], [1])[0] == 200
    [pid] = workers_of(daemon, "raw")
    os.kill(pid, signal.SIGKILL)
    assert daemon.infer("raw", "x", [5], [1])[1]["outputs"][0]["data"] == [10]
    assert workers_of(daemon, "raw") != [pid]


def test_it_sleeps_and_no_process_of_it_is_left(daemon: Daemon) -> None:
    assert daemon.infer("raw", "x", [5], [1])[0] == 200
    [pid] = workers_of(daemon, "raw")
    assert daemon.call("POST", "/v2/repository/models/raw/unload")[0] == 200
    wait_until(lambda: not alive(pid), "it is gone")


def test_no_worker_outlives_a_daemon_that_is_killed(tmp_path: Path) -> None:
    shutil.copytree(scaffold(tmp_path / "raw", None, tensor_format="raw"), tmp_path / "models" / "raw")
    with running(tmp_path / "daemon", "--models-dir", str(tmp_path / "models"), "--no-grpc") as daemon:
        assert daemon.infer("raw", "x", [5], [1])[0] == 200
        children = list(daemon.children())
        daemon.process.kill()
        daemon.process.wait()
        wait_until(lambda: not any(map(alive, children)), "they are gone")
