"""Python models behind a real daemon: every datatype, and all that somebody's code may do to itself."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import python_models
from tests.daemon import Daemon, alive, running, wait_until
from tests.e2e.asking import ask, ask_together, binary, declared, oip, receive, send, tensor
from wakeful.tensors import DTYPES, LENGTH

SETTINGS = {
    "asleep": "load_timeout_secs = 1",
    "hung": "request_timeout_ms = 1000\nbatching = \"off\"",
    "pair": "replicas = 2",
    "reaps": "replicas = 2",
    "openmp": "replicas = 2",
    "merged": 'batching = "on"\nbatch_policy = "timer"\nmax_batch_delay_ms = 10000\nmax_batch_size = 4',
    "wide": "threads = 2",
    "device": 'device = "cuda:3"',
}
"""By model; others have what [defaults] say."""

BARE_PYTHON = Path("/usr/bin/python3")
"""An interpreter in which nothing is installed."""

COPIED = {"as shipped", "copied from a live replica"}
PID = 'import os; return {"pid": [os.getpid()]}'


def make(models: Path) -> None:
    """All models of this module."""
    make_model = python_models.model
    python_models.all_types(models / "types")
    python_models.undeclared(models / "undeclared")
    python_models.undeclared(models / "merged", load="self.runs = 0")
    make_model(models / "talks", predict='print("hello from predict"); return {"y": inputs["x"]}')
    make_model(models / "chatters", predict='[print("again and again", i) for i in range(100_000)]; return {"y": inputs["x"]}')
    make_model(models / "narrow", predict='print("asked"); return {"y": inputs["x"]}')
    make_model(models / "fails", predict="return {'y': [][3]}")
    make_model(models / "refuses", top="class InvalidInput(Exception): pass", predict='raise InvalidInput("x must be sorted")')
    make_model(models / "exits", top="import os", predict="os._exit(5)", declares="")
    make_model(models / "crashes", top="import ctypes", predict="ctypes.string_at(0)", declares="")
    make_model(models / "forks", top="import os", load="os.fork()", predict='os.fork(); return {"y": inputs["x"]}')
    make_model(models / "reaps", top="import signal", load="signal.signal(signal.SIGCHLD, signal.SIG_IGN)", declares="", predict=PID)
    make_model(models / "shuts", top="import os, sys", load="os.close(1); os.close(2)", predict='print("hm"); return {"y": inputs["x"]}')
    make_model(models / "gags", top="import sys", load="sys.stdout.close(); sys.stderr.close()", predict='raise ValueError("all the same")')
    make_model(models / "mumbles", predict=r'raise ValueError("\udcff")')
    make_model(models / "rambles", declares="", predict='return {f"o{i}": [1] for i in range(20_000)}')
    make_model(models / "slurs", declares="", predict=r'return {"\udcff": [1]}')
    make_model(models / "vast", declares='signature = {"inputs": {f"x{i}": ("FP32", [1]) for i in range(20_000)}, "outputs": {"y": ("FP32", [1])}}')
    make_model(models / "leaves", top="import os", load="os._exit(4)")
    make_model(models / "missing", top="import math\nimport no_such_library")
    make_model(models / "asleep", top="import time", load="time.sleep(3600)")
    make_model(models / "hung", top="import time", predict='time.sleep(3600 if inputs["x"][0, 0] else 0); return {"y": inputs["x"]}')
    make_model(models / "slow", top="import time; time.sleep(3)")
    make_model(models / "pair", declares="", predict=PID)
    make_model(models / "threads", top="import threading, time",
               load="threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()", predict=PID, declares="")
    make_model(models / "later", top="import threading, time",
               predict='threading.Thread(target=time.sleep, args=(3600,), daemon=True).start(); return {"y": inputs["x"]}')
    make_model(models / "openmp", top=python_models.openmp(), declares="", predict=PID)
    make_model(models / "family", top="import subprocess", declares="", load='self.child = subprocess.Popen(["sleep", "3600"])',
               predict='return {"pid": [self.child.pid]}')
    make_model(models / "hoards", top="import subprocess, sys", declares="",
               load='self.child = subprocess.Popen([sys.executable, "-c", "x = b\'1\' * 100_000_000; print(1, flush=True); input()"], '
                    'stdin=subprocess.PIPE, stdout=subprocess.PIPE); self.child.stdout.readline()', predict=PID)
    make_model(models / "network", top="import os", declares="", predict='return {"net": [os.readlink("/proc/self/ns/net")]}')
    make_model(models / "elsewhere", top="import os, sys", declares="", env={"GREETING": "hello"}, python=sys.executable,
               predict='return {"said": [os.environ["GREETING"], sys.executable], "pid": [os.getpid()]}')
    python_models.ident(models / "bare", python=str(BARE_PYTHON))
    make_model(models / "wide", top="import os", declares="", predict='return {"threads": [os.environ["OMP_NUM_THREADS"]]}')
    make_model(models / "device", load="self.device = device", declares="", predict='return {"device": [self.device]}')
    make_model(models / "changes", declares="", top="import part", predict='return {"n": [part.N]}')
    (models / "changes" / "part.py").write_text("N = 1\n")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    home = tmp_path_factory.mktemp("python")
    make(home / "models")
    entries = "".join(f'[[models]]\nid = "{name}"\npath = "{name}"\n{settings}\n' for name, settings in SETTINGS.items())
    (home / "models.toml").write_text(f"[defaults]\nidle_timeout_secs = 0\nmax_replicas = 1\n{entries}")
    with running(home, "--config", str(home / "models.toml"), "--models-dir", str(home / "models"), "--no-grpc") as daemon:
        yield daemon


def x(*first: float) -> dict[str, Any]:
    return tensor("x", [len(first), 4], [number for one in first for number in (one, 0, 0, 0)])


def said(daemon: Daemon, model: str, name: str) -> Any:
    """The only element of an output of a model that takes anything."""
    return ask(daemon, oip(model, x(1))).output(name)[0]


def tried(daemon: Daemon, model: str) -> tuple[int, str]:
    answer = ask(daemon, oip(model, x(1)))
    return answer.status, answer.json.get("error", "")


# ── what they take and give ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def elements(datatype: str) -> bytes:
    if datatype == "BYTES":
        return b"".join(LENGTH.pack(len(text)) + text for text in (b"\xff\x00", b"", "ü".encode(), b"x" * 300))
    return np.arange(4).astype(DTYPES[datatype].numpy).tobytes()


def test_every_datatype_there_and_back_with_the_same_bits(daemon: Daemon) -> None:
    tensors = [declared(f"in_{name}", name, 2, 2) for name in DTYPES]
    chunks = [elements(name) for name in DTYPES]
    answer = ask(daemon, binary("types", tensors, chunks))
    assert answer.status == 200, answer.body
    assert [(output["name"], output["datatype"]) for output in answer.json["outputs"]] == [(f"out_{name}", name) for name in DTYPES]
    assert answer.json_length is not None
    assert answer.body[answer.json_length :] == b"".join(chunks)


def test_a_declared_model_is_described_checked_and_merged(daemon: Daemon) -> None:
    assert daemon.call("POST", "/v2/repository/models/talks/load")[0] == 200
    _, metadata = daemon.call("GET", "/v2/models/talks")
    assert (metadata["platform"], metadata["inputs"]) == ("wakeful_python", [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}])
    assert daemon.wait_event("probe", "talks")["text"].startswith("merges requests: rows do not influence each other")
    assert ask(daemon, oip("talks", tensor("x", [1, 3], [1, 2, 3]))).status == 400


def test_an_undeclared_one_takes_what_comes(daemon: Daemon) -> None:
    answer = ask(daemon, oip("undeclared", tensor("b", [2], [True, False], "BOOL"), tensor("a", [], [7], "INT8")))
    assert [(output["name"], output["datatype"], output["data"]) for output in answer.json["outputs"]] == [
        ("out_b", "BOOL", [True, False]), ("out_a", "INT8", [7])]
    assert "declares no signature" in daemon.wait_event("probe", "undeclared")["text"]
    wanted = ask(daemon, oip("undeclared", x(1), outputs=[{"name": "nothing"}]))
    assert (wanted.status, "names among ['out_x']" in wanted.json["error"]) == (400, True)
    assert ask(daemon, oip("undeclared", x(1), x(1) | {"name": "z"}, outputs=[{"name": "out_z"}])).output("out_z") == [1, 0, 0, 0]
    _, metadata = daemon.call("GET", "/v2/models/undeclared")
    assert (metadata["inputs"], metadata["outputs"]) == ([], [])


def test_snoozemls_api_gives_an_undeclared_one_32_bit_floats(daemon: Daemon) -> None:
    status, answer = daemon.call("POST", "/v1/models/undeclared/infer", {"inputs": [{"name": "x", "shape": [2], "data": [1.5, 2]}]})
    assert (status, answer["outputs"][0]["data"]) == (200, [1.5, 2])
    assert daemon.call("POST", "/v1/models/undeclared/infer", {"inputs": [{"name": "x", "shape": [1], "data": [1e300]}]})[0] == 400


def test_an_undeclared_one_merges_where_it_is_told_so(daemon: Daemon) -> None:
    runs = daemon.metric("wakeful_batch_rows_count", model="merged")
    answers = ask_together(daemon, [oip("merged", x(number)) for number in range(4)])
    assert [answer.output()[0] for answer in answers] == [0, 1, 2, 3]
    assert daemon.metric("wakeful_batch_rows_count", model="merged") == runs + 1


def test_the_device_and_the_threads_are_what_the_settings_say(daemon: Daemon) -> None:
    assert said(daemon, "device", "device") == "cuda:3"
    assert said(daemon, "wide", "threads") == "2"


# ── what it says ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_prints_are_in_the_log_under_its_name(daemon: Daemon) -> None:
    assert ask(daemon, oip("talks", x(1))).status == 200
    wait_until(lambda: "print   python talks: hello from predict" in daemon.log, "it is logged")


def test_the_self_test_is_not_heard(daemon: Daemon) -> None:
    """Its requests are nobody's."""
    assert ask(daemon, oip("narrow", tensor("x", [1, 4], [1, 0, 0, 0]))).status == 200
    assert daemon.wait_event("probe", "narrow")
    assert ask(daemon, oip("narrow", tensor("x", [1, 4], [1, 0, 0, 0]))).status == 200
    wait_until(lambda: daemon.log.count("narrow: asked") == 2, "both are logged")


def test_prints_without_end_are_cut_and_hold_nobody_up(daemon: Daemon) -> None:
    assert ask(daemon, oip("chatters", x(1))).status == 200
    assert ask(daemon, oip("undeclared", x(1))).status == 200
    wait_until(lambda: "chatters: again and again" in daemon.log, "it is logged")
    assert daemon.log.count("chatters: again and again") < 5000


def test_its_own_failure_is_told_to_the_caller_and_the_place_to_the_owner(daemon: Daemon) -> None:
    status, error = tried(daemon, "fails")
    assert (status, error) == (500, "IndexError: list index out of range")
    wait_until(lambda: "in predict" in daemon.log and "IndexError" in daemon.log, "the traceback is logged")
    assert "/fails/wakeful_model.py\", line 5, in predict" in daemon.log
    assert tried(daemon, "refuses") == (400, "x must be sorted")


def test_a_failed_import_names_its_line(daemon: Daemon) -> None:
    status, error = tried(daemon, "missing")
    assert status == 503
    assert error.startswith("wakeful_model.py, line 2: ModuleNotFoundError: No module named 'no_such_library'")


# ── how it ends ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("model", "words"), [
    ("mumbles", r"ValueError: \udcff"),
    ("rambles", "names and shapes of the model's tensors take "),
    ("slurs", "cannot be told: 'utf-8' codec can't encode"),
    ("gags", "ValueError: all the same"),
])
def test_what_cannot_be_told_fails_its_run_and_not_its_process(daemon: Daemon, model: str, words: str) -> None:
    daemon.wake(model)
    before = set(daemon.replicas())
    status, error = tried(daemon, model)
    assert (status, words in error) == (500, True), error
    assert before <= set(daemon.replicas())


@pytest.mark.parametrize("names", [[f"x{number}" for number in range(4000)], ["x" * 200_000]])
def test_inputs_that_cannot_be_told_are_refused_and_end_no_process(daemon: Daemon, names: list[str]) -> None:
    pid = said(daemon, "pair", "pid")
    answer = ask(daemon, oip("pair", *(tensor(name, [1], [1]) for name in names)))
    assert (answer.status, "inputs: expected names and shapes of at most" in answer.json["error"]) == (400, True), answer.body
    assert alive(pid)


def test_a_signature_that_cannot_be_told_is_a_load_that_failed(daemon: Daemon) -> None:
    status, error = tried(daemon, "vast")
    assert (status, "at most 131072 can be told" in error) == (503, True), error


def test_a_model_that_has_closed_what_it_prints_to_answers(daemon: Daemon) -> None:
    assert tried(daemon, "shuts") == (200, "")


def test_a_child_that_comes_back_from_the_models_code_is_no_replica(daemon: Daemon) -> None:
    before = set(daemon.replicas())
    assert [tried(daemon, "forks") for _ in range(3)] == [(200, "")] * 3
    assert daemon.wait_event("probe", "forks")["figures"]["mergeable"]
    wait_until(lambda: len([pid for pid in set(daemon.replicas()) - before if alive(pid)]) == 1, "its children have ended")


@pytest.mark.parametrize(("model", "words"), [("exits", "status 5"), ("crashes", "SIGSEGV")])
def test_one_that_ends_its_process_in_a_run_fails_its_caller_alone(daemon: Daemon, model: str, words: str) -> None:
    status, error = tried(daemon, model)
    assert status == 500
    assert words in error
    assert daemon.wait_event("blame", model)
    assert ask(daemon, oip("undeclared", x(1))).status == 200


def test_a_crash_names_its_line_in_the_log(daemon: Daemon) -> None:
    tried(daemon, "crashes")
    wait_until(lambda: "/crashes/wakeful_model.py\", line 5 in predict" in daemon.log, "the stack is logged")


def test_one_that_ends_its_process_while_it_loads(daemon: Daemon) -> None:
    status, error = tried(daemon, "leaves")
    assert status == 503
    assert "status 4" in error


def test_a_load_that_hangs_has_an_end(daemon: Daemon) -> None:
    status, error = tried(daemon, "asleep")
    assert status == 503
    assert "load_timeout_secs (1 s)" in error


def test_a_run_that_hangs_has_an_end_and_the_next_caller_an_answer(daemon: Daemon) -> None:
    for _ in range(20):  # how long its runs take is known
        assert ask(daemon, oip("hung", x(0))).status == 200
    assert ask(daemon, oip("hung", x(1))).status == 504
    assert daemon.wait_event("restart", "hung")["figures"]["cause"] == "stuck"
    wait_until(lambda: ask(daemon, oip("hung", x(0))).status == 200, "it is back")


def test_a_slow_import_holds_up_nobody_else(daemon: Daemon) -> None:
    """Others wake, and run, before it is through."""
    with closing(send(daemon, oip("slow", x(1)))) as connection:
        wait_until(lambda: daemon.metric("wakeful_replicas", model="slow", state="starting") == 1, "it is being imported")
        for model in ("undeclared", "network"):
            assert ask(daemon, oip(model, x(1))).status == 200
        assert daemon.metric("wakeful_replicas", model="slow", state="starting") == 1
        assert receive(connection).status == 200


# ── its processes ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ways(daemon: Daemon, model: str) -> set[str]:
    """How its replicas came to be."""
    wait_until(lambda: daemon.metric("wakeful_replicas", model=model, state="ready") == 2, "both are there")
    return {event["figures"]["how"] for event in daemon.events(model=model) if event["kind"] == "load"}


def test_plain_code_is_copied_and_what_has_openmp_is_loaded_anew(daemon: Daemon) -> None:
    for model, expected in (("pair", COPIED), ("reaps", COPIED), ("openmp", {"as shipped"})):
        assert ask(daemon, oip(model, x(1))).status == 200
        assert ways(daemon, model) == expected
    assert "openmp: further replicas are loaded anew, not copied: it uses libgomp" in daemon.log


def test_what_has_started_a_thread_is_not_copied(daemon: Daemon) -> None:
    assert ask(daemon, oip("threads", x(1))).status == 200
    wait_until(lambda: "threads: further replicas are loaded anew, not copied: it has 2 threads" in daemon.log, "that is said")


def test_a_thread_that_a_run_has_started_keeps_nobody_from_the_self_test(daemon: Daemon) -> None:
    """It was ready to be copied, and is not any more."""
    assert ask(daemon, oip("later", x(1))).status == 200
    assert daemon.wait_event("probe", "later")["figures"]["mergeable"]


def test_processes_that_it_starts_die_with_it(daemon: Daemon) -> None:
    """However it ends: told to, or killed."""
    for end in ("unload", "kill"):
        child = said(daemon, "family", "pid")
        assert alive(child)
        if end == "kill":
            parent = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1]
            os.kill(int(parent), 9)
        else:
            assert daemon.call("POST", "/v2/repository/models/family/unload")[0] == 200
        wait_until(lambda child=child: not alive(child), "it is gone")


def test_they_count_in_its_memory(daemon: Daemon) -> None:
    said(daemon, "hoards", "pid")
    wait_until(lambda: daemon.metric("wakeful_resident_bytes", model="hoards") > 100_000_000, "it is measured")


def test_it_has_no_network(daemon: Daemon) -> None:
    ours = str(Path("/proc/self/ns/net").readlink())
    assert said(daemon, "network", "net") != ours or "for python keep the network" in daemon.log


def test_another_interpreter_and_environment(daemon: Daemon) -> None:
    answer = ask(daemon, oip("elsewhere", x(1)))
    assert answer.output("said") == ["hello", sys.executable]
    command = Path(f"/proc/{answer.output('pid')[0]}/cmdline").read_bytes().split(b"\0")
    assert command[3].endswith(b"wakeful/worker/elsewhere.py")
    assert ask(daemon, oip("elsewhere", x(2))).output("pid") == answer.output("pid")


@pytest.mark.skipif(not BARE_PYTHON.exists(), reason=f"{BARE_PYTHON} is not there")
def test_an_interpreter_that_lacks_what_it_needs_says_so(daemon: Daemon) -> None:
    status, error = tried(daemon, "bare")
    assert status == 503
    assert f"{BARE_PYTHON} -m pip install numpy msgspec" in error


# ── its files ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_changed_code_is_loaded_by_a_refresh(daemon: Daemon) -> None:
    assert said(daemon, "changes", "n") == 1
    part = daemon.directory / "models" / "changes" / "part.py"
    part.write_text("N = 22\n")
    assert daemon.call("POST", "/v1/models/refresh")[0] == 200
    assert said(daemon, "changes", "n") == 22
    assert not list(part.parent.rglob("__pycache__"))
