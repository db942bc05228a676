"""Peers, as far as none needs to be installed: their lists of packages, the leash that holds them, and the word on one that cannot be had."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from bench.models import tiny
from bench.peers import PEERS
from bench.peers.install import REQUIREMENTS, NotInstalled, environment, reason
from bench.peers.interface import Interface, Port, interface, zeros
from bench.peers.peer import INSIDE, LEASH, Peer
from bench.peers.triton import configuration
from bench.servers import ServerFailed

SECONDS = 60.0
PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path_factory.getbasetemp() / "bench-cache"
    monkeypatch.setenv("WAKEFUL_BENCH_CACHE", str(directory))
    return directory


def listed_packages(peer: str) -> list[str]:
    return (REQUIREMENTS / f"{PEERS[peer].packages or peer}.txt").read_text().splitlines()


@pytest.mark.parametrize("peer", PEERS)
def test_every_package_of_a_peer_is_pinned_and_pytorch_is_none_of_them(peer: str) -> None:
    lines = listed_packages(peer)
    packages = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in packages if not PIN.fullmatch(line)] == []
    names = {line.partition("==")[0].lower() for line in packages}
    assert "onnxruntime" in names
    assert "torch" not in names


def test_all_peers_run_the_same_library() -> None:
    lines = [line for peer in PEERS for line in listed_packages(peer) if line.startswith("onnxruntime==")]
    assert len(lines) == len(PEERS)
    assert len(set(lines)) == 1


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_says_how_it_was_configured(peer: str) -> None:
    assert PEERS[peer].key == peer
    assert PEERS[peer].name
    assert "atch" in PEERS[peer].choice


# Installing --------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lists of packages of this test's own."""
    monkeypatch.setattr("bench.peers.install.REQUIREMENTS", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path


def test_an_environment_is_made_once_and_anew_for_another_list(listed: Path, cache: Path) -> None:
    said: list[str] = []
    (listed / "nobody.txt").write_text("# nothing\n")
    directory = environment("nobody", said.append)
    assert directory == cache / "peers" / "nobody"
    command = [str(directory / "bin" / "python"), "-c", "import sys; print(sys.prefix)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == str(directory)
    environment("nobody", said.append)
    assert len(said) == 1
    (directory / "leftover").touch()
    (listed / "nobody.txt").write_text("# nothing, said otherwise\n")
    environment("nobody", said.append)
    assert len(said) == 2
    assert not (directory / "leftover").exists()


def test_a_peer_that_cannot_be_installed_is_told_with_the_reason(listed: Path) -> None:
    (listed / "nowhere.txt").write_text("no-such-package-of-wakeful==1.0\n")
    with pytest.raises(NotInstalled, match=r"^nowhere could not be installed: .*No matching distribution found for no-such-package-of-wakeful==1.0"):
        environment("nowhere")


def test_the_reason_is_the_errors_if_there_are_any_and_the_last_lines_if_not() -> None:
    assert reason("Collecting\nERROR: a\nhint\n") == "ERROR: a"
    assert reason("\n".join("abcdef")) == "c d e f"
    assert reason("\n") == "no word on why"


# What a model takes ------------------------------------------------------------------------------------------------------------------


def test_the_interface_is_read_from_the_file() -> None:
    assert interface(tiny().path) == Interface((Port("x", "FP32", (4,)),), (Port("y", "FP32", (3,)),))


def test_a_first_request_is_one_row_of_zeros() -> None:
    body = zeros([Port("ids", "INT64", (-1,)), Port("x", "FP32", (2, -1, 2))])
    assert body == {"inputs": [
        {"name": "ids", "shape": [1, 1], "datatype": "INT64", "data": [0]},
        {"name": "x", "shape": [1, 2, 1, 2], "datatype": "FP32", "data": [0.0] * 4},
    ]}


def test_triton_is_told_what_the_model_takes() -> None:
    text = configuration("tiny", tiny().path, 2)
    assert 'name: "tiny"' in text
    assert 'input [{name: "x" data_type: TYPE_FP32 dims: [4]}]' in text
    assert 'output [{name: "y" data_type: TYPE_FP32 dims: [3]}]' in text
    assert "count: 2" in text
    assert "dynamic_batching {}" in text


# What runs in the environments of peers: it needs nothing else than this one has --------------------------------------------------------


def inside(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, str(tiny().path)], env=os.environ | {"PYTHONPATH": str(INSIDE)}, capture_output=True, text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_requests_that_ran_together_get_their_own_rows() -> None:
    assert inside("""if True:
        import sys
        import numpy as np
        from onnx_model import Model, decode, encode
        model = Model(sys.argv[1])
        members = [decode([{"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": [rows * .1] * rows * 4}]) for rows in (1, 3, 2)]
        together, alone = model.run_together(members), [model.run_together([member])[0] for member in members]
        for ours, theirs in zip(together, alone):
            np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-6)
        answer = encode(together[1])[0]
        print(answer["name"], answer["datatype"], answer["shape"], len(answer["data"]))
    """) == "y FP32 [3, 3] 9\n"


# The leash ---------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Path]:
    """A file's path: processes that have it in their command line are this test's, and must be gone at its end."""
    mark = tmp_path / "mark"
    yield mark
    left = bearers(mark)
    for process in left:
        process.kill()
    assert left == []


def bearers(mark: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if str(mark) in (process.info["cmdline"] or [])]


DETACHED = """if True:
    import os, subprocess, sys, time
    sleep = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)", sys.argv[1]]
    apart = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
    subprocess.Popen([sys.executable, "-c", apart, *sleep]).wait()
    print("detached", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def leashed(mark: Path, seconds: float) -> "subprocess.Popen[str]":
    leash = subprocess.Popen(
        [sys.executable, "-I", str(LEASH), sys.executable, "-c", DETACHED, str(mark), str(seconds)], stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )
    assert leash.stdout is not None
    assert leash.stdout.readline() == "detached\n"
    return leash


def test_a_detached_daemon_stays_in_the_tree_and_ends_with_it(marked: Path) -> None:
    with leashed(marked, 600) as leash:
        daemon = next(process for process in bearers(marked) if process.ppid() == leash.pid and process.pid == os.getsid(process.pid))
        assert daemon.pid in {process.pid for process in psutil.Process(leash.pid).children(recursive=True)}
        leash.send_signal(signal.SIGTERM)
        leash.wait(SECONDS)
    assert bearers(marked) == []


def test_what_a_command_leaves_behind_ends_when_it_ends_by_itself(marked: Path) -> None:
    with leashed(marked, 0) as leash:
        assert leash.wait(SECONDS) == 0
    assert bearers(marked) == []


def test_all_ends_if_the_bench_is_killed(marked: Path) -> None:
    bench = subprocess.Popen([
        sys.executable, "-c", "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(60)",
        sys.executable, "-I", str(LEASH), sys.executable, "-c", DETACHED, str(marked), "600",
    ], stdout=subprocess.PIPE, text=True)
    assert bench.stdout is not None
    with bench:
        assert bench.stdout.readline() == "detached\n"
        bench.kill()
    end = time.monotonic() + SECONDS
    while bearers(marked) and time.monotonic() < end:
        time.sleep(0.02)
    assert bearers(marked) == []


def test_the_status_is_the_commands() -> None:
    def status(*command: str) -> int:
        return subprocess.run([sys.executable, "-I", str(LEASH), *command], check=False, capture_output=True).returncode

    assert status(sys.executable, "-c", "raise SystemExit(3)") == 3
    assert status(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)") == 128 + 9
    assert status("no-such-command-of-wakeful") == 127


# A peer's life, with a server of a few lines in its place --------------------------------------------------------------------------------


class Stub(Peer):
    name = "Stub"
    key = "nobody"
    choice = "Batches nothing."
    program = """if True:
        import http.server, sys
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"outputs": [{}]}')
        http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
    """

    def configure(self, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
        return [sys.executable, "-c", self.program, str(port)], {}


class Failing(Stub):
    program = "raise SystemExit('no such luck')"


@pytest.fixture
def no_packages(listed: Path) -> None:
    (listed / "nobody.txt").write_text("# nothing, said otherwise\n")


@pytest.mark.usefixtures("no_packages")
def test_a_peer_is_ready_once_it_has_answered_and_nothing_of_it_stays() -> None:
    with Stub({"tiny": tiny().path}) as server:
        assert server.call("POST", server.path("tiny"), {})[0] == 200
        pids = server.pids()
        assert len(pids) == 2
        assert server.tree_pss() > 0
    assert not any(map(psutil.pid_exists, pids))


@pytest.mark.usefixtures("no_packages")
def test_a_peer_that_does_not_start_says_why() -> None:
    with pytest.raises(ServerFailed, match=r"Stub ended with status 1 before it was ready\nno such luck"), Failing({"tiny": tiny().path}):
        pass
