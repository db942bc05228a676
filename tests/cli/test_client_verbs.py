"""The verbs that talk to a daemon, as processes of their own, against a real one."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests import onnx_models
from tests.daemon import Daemon, freeze, running
from wakeful.cli import wire
from wakeful.cli.client import Client, Failure
from wakeful.cli.status import NO, NO_MODEL, NOT_ALLOWED, NOT_REACHABLE, UNAVAILABLE, WRONG_USE

KEYS = {"admin": "an-admin-key-of-24-chars", "read_only": "a-reader-key-of-24-chars"}
UTF8 = {"LC_ALL": "C.UTF-8"}


def wakeful(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wakeful", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env=os.environ | UTF8 | env, stdin=subprocess.DEVNULL, encoding="utf-8",
    )


def data_of(done: subprocess.CompletedProcess[str]) -> Any:
    """What --json printed: one object."""
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["wakeful"] == 1
    return answer["data"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("verbs")
    models = directory / "models"
    models.mkdir()
    for name in ("emb-one", "emb-two", "other"):
        onnx_models.ident(models / f"{name}.onnx")
    (models / "broken.onnx").write_bytes(b"no model at all")
    with running(directory / "daemon", "--models-dir", str(models), "--no-grpc") as daemon:
        yield daemon


def ask(daemon: Daemon, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return wakeful(*arguments, "--url", daemon.url, **env)


def test_the_settings_of_a_daemon_are_its_own(daemon: Daemon) -> None:
    done = ask(daemon, "config", "show", "server.cache_dir")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].split() == ["server.cache_dir", f'"{daemon.directory / "cache"}"', "option", "--cache-dir"]
    assert "did you mean server.port?" in ask(daemon, "config", "show", "server.prot").stderr
    assert wakeful("config", "--url", "http://127.0.0.1:1").returncode == NOT_REACHABLE


def states(daemon: Daemon) -> dict[str, str]:
    return {model["key"]: model["state"] for model in data_of(ask(daemon, "ps", "--json"))["models"]}


def test_health(daemon: Daemon) -> None:
    for options in ([], ["--json"], ["-v"], ["--live"]):
        done = ask(daemon, "health", *options)
        assert done.returncode == 0
        assert "live" in done.stdout if "--live" in options else "ready" in done.stdout
    assert ask(daemon, "health", "-q").stdout == ""
    assert wakeful("health", WAKEFUL_URL=daemon.url).returncode == 0
    assert wakeful("health", "--url", "ftp://nowhere").returncode == WRONG_USE


def test_a_model_is_loaded_pinned_unpinned_and_unloaded(daemon: Daemon) -> None:
    assert ask(daemon, "load", "other").stdout.startswith("loaded other in ")
    assert ask(daemon, "load", "other").stdout == "other is awake already\n"
    assert states(daemon)["other"] == "ready"
    assert ask(daemon, "pin", "other").stdout == "pinned other: awake already; no idle time, eviction or ceiling ends it now\n"
    assert "pinned" in ask(daemon, "ps").stdout
    assert ask(daemon, "unpin", "other", "--dry-run").stdout == "would unpin other\n"
    assert "unless somebody asks for it" in ask(daemon, "unpin", "other").stdout
    would = ask(daemon, "unload", "other", "--dry-run").stdout
    assert would.startswith("would put other to sleep, and free ")
    assert states(daemon)["other"] == "ready"
    assert ask(daemon, "unload", "other").stdout.startswith("unloaded other in ")
    assert states(daemon)["other"] == "asleep"
    assert ask(daemon, "unload", "other").stdout == "other sleeps already\n"


def test_patterns_and_several_names(daemon: Daemon) -> None:
    ask(daemon, "unload", "*")
    data = data_of(ask(daemon, "load", "emb-*", "other", "other", "--json"))
    assert [one["model"] for one in data["models"]] == ["emb-one", "emb-two", "other"]
    assert all(one["changed"] for one in data["models"])
    done = ask(daemon, "unload", "*")
    assert done.returncode == 0
    assert {state for name, state in states(daemon).items() if name != "broken"} == {"asleep"}
    done = ask(daemon, "load", "x-*")
    assert done.returncode == NO_MODEL
    assert "no model's name is like x-*" in done.stderr


def test_one_of_several_that_fails_does_not_keep_the_others(daemon: Daemon) -> None:
    done = ask(daemon, "load", "broken", "emb-one")
    assert done.returncode == NO
    assert done.stdout.startswith("loaded emb-one in ")
    assert "error: broken: " in done.stderr
    listed = ask(daemon, "ps").stdout
    assert "  broken: " in listed
    assert "1 failed" in listed
    error = json.loads(ask(daemon, "load", "broken", "--json").stdout)["error"]
    assert (error["code"], error["exit"], error["hint"]) == ("load_failed", NO, "wakeful explain broken")


def test_a_name_that_nobody_has(daemon: Daemon) -> None:
    for verb in ("load", "unload", "pin", "unpin", "explain"):
        done = ask(daemon, verb, "emb-oen")
        assert done.returncode == NO_MODEL
        assert done.stderr == "error: there is no model emb-oen\n  hint: did you mean emb-one?\n"
        assert done.stdout == ""


def test_ps_through_a_pipe_is_plain(daemon: Daemon) -> None:
    for env in ({}, {"NO_COLOR": "1"}, {"LC_ALL": "C"}, {"TERM": "dumb"}):
        done = ask(daemon, "ps", "-a", **env)
        assert done.returncode == 0
        assert "\x1b" not in done.stdout
        assert done.stdout.isascii() == (env.get("LC_ALL") == "C")
        assert all(name in done.stdout for name in ("MODEL", "emb-one", "emb-two", "other"))
    assert "\x1b[" in ask(daemon, "ps", "-a", "--color", "always").stdout


def test_ps_hides_what_has_never_been_awake(tmp_path: Path) -> None:
    with running(tmp_path, "--demo", "--no-grpc") as daemon:
        assert "2 more with -a" in ask(daemon, "ps").stdout
        assert "digits" not in ask(daemon, "ps").stdout
        assert ask(daemon, "ps", "--wide", "-a").stdout.count("nobody has asked for it yet") == 2
        assert daemon.infer("demo-model", "input", [1, 2, 3, 4], [1, 4])[0] == 200
        listed = ask(daemon, "ps").stdout
        assert "demo-model" in listed
        assert "digits" not in listed


def test_events(daemon: Daemon) -> None:
    ask(daemon, "load", "other")
    ask(daemon, "unload", "other")
    events = data_of(ask(daemon, "events", "--model", "other", "--kind", "load,unload", "--json"))["events"]
    assert [event["kind"] for event in events][-2:] == ["load", "unload"]
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    last = ask(daemon, "events", "--since", "1h", "-n", "1", "--reason", "manual").stdout
    assert last.count("\n") == 1
    assert " unload " in last
    assert ask(daemon, "events", "--kind", "nonsense").returncode == WRONG_USE


@contextmanager
def following(daemon: Daemon, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "wakeful", "events", "--follow", "--url", daemon.url, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | UTF8)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_following_events(daemon: Daemon) -> None:
    ask(daemon, "load", "other")
    ask(daemon, "unload", "other")
    with following(daemon, "--model", "other", "--kind", "unload", "--limit", "1", "--json") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())["data"]
        ask(daemon, "load", "other")
        ask(daemon, "unload", "other")
        second = json.loads(process.stdout.readline())
        assert second["kind"] == "event"
        assert second["data"]["seq"] > first["seq"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert process.stderr.read() == "interrupted\n"


def test_following_tells_nothing_twice(daemon: Daemon) -> None:
    """A daemon that did not answer for a while may still be the same one."""
    ask(daemon, "load", "other")
    ask(daemon, "unload", "other")
    with following(daemon, "--model", "other", "--kind", "unload", "--limit", "1", "--timeout", "1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline().split()[1]
        freeze(daemon.process.pid)
        try:
            assert process.stderr.readline().endswith("waiting for it\n")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert process.stderr.readline() == "it is back\n"
        ask(daemon, "load", "other")
        ask(daemon, "unload", "other")
        assert int(process.stdout.readline().split()[1]) > int(first)


def own_address() -> str:
    """Of this machine, and of this process alone: a port of it stays free while nobody listens there."""
    pid = os.getpid()
    return f"127.{1 + (pid >> 14) % 250}.{1 + (pid >> 7) % 128}.{1 + pid % 128}"


def test_following_goes_on_after_a_restart(tmp_path: Path) -> None:
    place = ("--host", own_address(), "--port", "18080")
    with running(tmp_path, "--demo", "--no-grpc", *place) as daemon, following(daemon, "--kind", "ready") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert " ready " in process.stdout.readline()
        daemon.stop()
        assert "waiting for it" in process.stderr.readline()
        with running(tmp_path, "--demo", "--no-grpc", *place):
            assert process.stderr.readline() == "it is back\n"
            assert " ready " in process.stdout.readline()


def test_following_goes_on_after_a_restart_that_it_slept_through(tmp_path: Path) -> None:
    place = ("--host", own_address(), "--port", "18080")
    with running(tmp_path, "--demo", "--no-grpc", *place) as daemon, following(daemon, "--kind", "ready") as process:
        assert process.stdout is not None
        assert " ready " in process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        daemon.stop()
        with running(tmp_path, "--demo", "--no-grpc", *place):
            process.send_signal(signal.SIGCONT)
            assert " ready " in process.stdout.readline()


def test_a_reader_that_has_seen_enough(daemon: Daemon) -> None:
    command = f"{sys.executable} -m wakeful events --url {daemon.url} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60, env=os.environ | UTF8)
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60, env=os.environ | UTF8)


@pytest.mark.parametrize("verb", ["ps", "health", "ps --json"])
def test_without_an_output(daemon: Daemon, verb: str) -> None:
    command = f"{sys.executable} -m wakeful {verb} --url {daemon.url}"
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        done = shell(f"{command} {closed}; echo $? >&2")
        assert (done.returncode, done.stderr) == (0, "0\n"), closed
    done = shell(f"{command} >/dev/full")
    assert (done.returncode, done.stderr) == (NO, "error: the output cannot be written: No space left on device\n")


def test_without_a_daemon() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))  # nobody listens
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        for verb in (["ps"], ["health"], ["events"], ["load", "x"], ["explain", "x"]):
            done = wakeful(*verb, WAKEFUL_URL=url)
            assert done.returncode == NOT_REACHABLE
            assert done.stderr == f"error: no daemon at {url}\n  hint: start one: wakeful serve; or name another: --url, WAKEFUL_URL\n"
            assert done.stdout == ""
        error = json.loads(wakeful("ps", "--json", "--url", url.removeprefix("http://")).stdout)
    assert error == {"wakeful": 1, "error": {
        "code": "unreachable", "message": f"no daemon at {url}",
        "hint": "start one: wakeful serve; or name another: --url, WAKEFUL_URL", "exit": NOT_REACHABLE,
    }}


def test_keys(tmp_path: Path) -> None:
    options = [f"--api-key={role}:{key}" for role, key in KEYS.items()]
    file = tmp_path / "key"
    file.write_text(KEYS["admin"] + "\n", encoding="utf-8")
    with running(tmp_path / "daemon", "--demo", "--no-grpc", *options) as daemon:
        done = ask(daemon, "ps")
        assert done.returncode == NOT_ALLOWED
        assert "WAKEFUL_API_KEY=..., or --key-file FILE" in done.stderr
        assert ask(daemon, "health").returncode == 0
        reader = {"WAKEFUL_API_KEY": KEYS["read_only"]}
        assert ask(daemon, "ps", **reader).returncode == 0
        assert ask(daemon, "load", "digits", **reader).returncode == NOT_ALLOWED
        assert ask(daemon, "load", "digits", "--key-file", str(file), **reader).returncode == 0
        assert ask(daemon, "ps", "--key-file", str(tmp_path / "none")).returncode == WRONG_USE


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that answers each connection with the next of these bytes; with none it says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        kept = []

        def serve() -> None:
            for answer in answers:
                connection, _ = sock.accept()
                kept.append(connection)
                connection.recv(65536)
                connection.sendall(answer)
                if answer:
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        thread.join(30)
        for connection in kept:
            connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}rest', b'HTTP/1.0 200 OK\r\n\r\n{"a": 1}',
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n5;x=y\r\n": 1}\r\n0\r\n\r\n',
    ],
)
def test_forms_of_answers(answer: bytes) -> None:
    with answering(answer) as url:
        assert Client(wire.parse(url), seconds=30).get("/") == {"a": 1}


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", NOT_REACHABLE, "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", NOT_REACHABLE, "in the middle"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", NOT_REACHABLE, "is not Wakeful"), (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", NOT_REACHABLE, "is not Wakeful"),
        (b'HTTP/1.1 503 x\r\n\r\n{"error": "full", "code": "out_of_memory"}', UNAVAILABLE, "full"),
        (b'HTTP/1.1 404 x\r\n\r\n{"error": "no such"}', NO_MODEL, "no such"), (b"\x00" * 10, NOT_REACHABLE, "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n[1]", NOT_REACHABLE, "is not Wakeful"),
        (b'HTTP/1.1 400 x\r\n\r\n{"error": ["x"]}', NOT_REACHABLE, "is not Wakeful"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, NOT_REACHABLE, "is not Wakeful"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000000000000\r\n\r\n{", NOT_REACHABLE, "in the middle"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{", NOT_REACHABLE, "in the middle"),
    ],
)
def test_answers_that_are_none(answer: bytes, status: int, words: str) -> None:
    with answering(answer) as url, pytest.raises(Failure, match=words) as caught:
        Client(wire.parse(url), seconds=30).get("/")
    assert caught.value.exit == status


@pytest.mark.parametrize("verb", ["ps", "events", "explain x", "load x", "infer x", "top"])
def test_another_server_that_speaks_json(verb: str) -> None:
    with answering(b'HTTP/1.1 200 OK\r\n\r\n{"models": []}') as url:
        done = wakeful(*verb.split(), "--url", url)
    assert done.returncode == NOT_REACHABLE
    assert done.stderr.startswith(f"error: what answers at {url} is not Wakeful (status 200)\n")


def test_who_answers_a_byte_at_a_time_has_not_answered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:

        def serve() -> None:
            connection, _ = sock.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while True:
                    connection.sendall(b"x: y\r\n")
                    time.sleep(0.01)  # far more often than the time that it has

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(Failure, match="has not answered for") as caught:
            Client(wire.Address("http", "127.0.0.1", sock.getsockname()[1]), seconds=0.3).get("/")
        thread.join(30)
    assert caught.value.exit == UNAVAILABLE


def test_a_daemon_that_says_nothing() -> None:
    with answering(b"") as url:
        done = wakeful("ps", "--url", url, "--timeout", "0.2")
    assert done.returncode == UNAVAILABLE
    assert "has not answered for 0.2 s" in done.stderr


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"), ("localhost:1", "http://localhost:1"), ("https://x/a/b/", "https://x:443/a/b"),
        ("http://[::1]:9/", "http://[::1]:9"), ("http://[::1]", "http://[::1]:80"), ("ftp://x", None), ("http://", None), ("http://x:0", None),
        ("http://x:y", None), ("http://user@x", None), ("", None),
    ],
)
def test_addresses(url: str, shown: str | None) -> None:
    if shown is None:
        with pytest.raises(ValueError, match="expected http://HOST:PORT"):
            wire.parse(url)
    else:
        assert str(wire.parse(url)) == shown


def test_queries() -> None:
    assert wire.query(model="\udcff") == "?model=%FF"  # as Python has a byte of the command line that is no UTF-8
    assert wire.query(a=1, b=None, c="x y/ü&") == "?a=1&c=x%20y/%C3%BC%26"
    assert wire.query() == ""
