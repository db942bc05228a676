"""A process that says on its channel what it should not: it is ended and replaced, and nobody else is touched by it."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests import onnx_models
from tests.crowd import Crowd, calm
from tests.daemon import Daemon, alive, freeze, running, wait_until
from tests.faults.channels import borrowed
from wakeful.runtime.channel import decoder
from wakeful.runtime.messages import (
    PACKET,
    Done,
    Failed,
    Hello,
    Placement,
    Prepared,
    Ready,
    Refused,
    Run,
    Signature,
    ToReplica,
    Verdict,
    encode,
)

decode = decoder(ToReplica)

MODELS = """
[defaults]
idle_timeout_secs = 0
prepare = "off"

[[models]]
id = "odd"
path = "ident.onnx"
max_replicas = 1

[[models]]
id = "bystander"
path = "ident.onnx"
pinned = true
"""
NONSENSE = {
    "bytes that are no message": b"\xc1 no message",
    "half a message": encode(Done(1, 0.0, ()))[:-1],
    "an empty list": b"\x90",
    "the answer to a run that was never given": encode(Done(10**9, 0.0, (Placement("y", "FP32", (1, 4), 0, 16),))),
    "the failure of a run that was never given": encode(Failed(10**9, "execution_failed", "no")),
    "the name of another process": encode(Hello(1)),
    "a second beginning": encode(Ready(Signature((), ()), Verdict(False, "", True), 0, True, False, "cpu")),
    "a refusal of what it has done": encode(Refused("unavailable", "no")),
    "a copy that nobody has asked for": encode(Prepared(0.0, 0)),
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("nonsense")
    onnx_models.ident(directory / "ident.onnx")
    (directory / "models.toml").write_text(MODELS)
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        assert daemon.infer("bystander", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        daemon.wait_event("probe", "bystander")
        wait_until(lambda: len(daemon.replicas()) == 1, "the copy that took the test is gone")
        try:
            borrowed(daemon.replicas()[0]).close()
        except OSError as error:
            pytest.skip(str(error))
        yield daemon


@pytest.fixture(scope="module")
def bystander(daemon: Daemon) -> int:
    [pid] = daemon.replicas()
    return pid


def odd(daemon: Daemon, bystander: int) -> int:
    """The process of the model that is to be troubled, awake."""
    assert daemon.infer("odd", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    wait_until(lambda: len(daemon.replicas()) == 2, "its process is alone")
    [pid] = set(daemon.replicas()) - {bystander}
    return pid


def in_the_hands_of(daemon: Daemon, pid: int) -> tuple[socket.socket, int, threading.Thread, list[tuple[int, Any]]]:
    """A process that is frozen with a request before it: its channel, the number of the run, who waits, and what that caller is told."""
    channel = borrowed(pid)
    answers: list[tuple[int, Any]] = []
    caller = threading.Thread(target=lambda: answers.append(daemon.infer("odd", "x", [5, 6, 7, 8], [1, 4])))
    freeze(pid)
    caller.start()
    channel.settimeout(60)
    order = decode(channel.recv(PACKET, socket.MSG_PEEK))
    assert isinstance(order, Run)
    return channel, order.run, caller, answers


@pytest.mark.parametrize("words", NONSENSE.values(), ids=NONSENSE.keys())
def test_a_replica_that_says(daemon: Daemon, bystander: int, words: bytes) -> None:
    """It says so while a request is in its hands: that is run again in another process."""
    pid = odd(daemon, bystander)
    since = daemon.events()[-1]["seq"]
    with Crowd(daemon, "bystander", clients=2) as crowd:
        channel, _, caller, answers = in_the_hands_of(daemon, pid)
        with channel:
            channel.send(words)
            caller.join(60)
    [(status, body)] = answers
    assert (status, body["outputs"][0]["data"]) == (200, [5, 6, 7, 8])
    assert daemon.wait_event("restart", "odd", since=since)["figures"]["cause"] == "broken"
    assert not alive(pid)
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    assert alive(bystander)
    wait_until(lambda: calm(daemon, "odd"), "nothing is left over")


def test_outputs_that_lie_nowhere_are_an_error_of_the_run(daemon: Daemon, bystander: int) -> None:
    """The right message about a place that is not there: the caller is told, and later ones are answered."""
    pid = odd(daemon, bystander)
    channel, run, caller, answers = in_the_hands_of(daemon, pid)
    with channel:
        channel.send(encode(Done(run, 0.0, (Placement("y", "FP32", (1, 4), 1 << 40, 16),))))
        caller.join(60)
        [(status, body)] = answers
        assert status == 500
        assert "unreadable outputs" in body["error"]
        os.kill(pid, signal.SIGCONT)
    assert daemon.infer("odd", "x", [9, 6, 7, 8], [1, 4])[1]["outputs"][0]["data"] == [9, 6, 7, 8]
    wait_until(lambda: calm(daemon, "odd"), "nothing is left over")


def test_a_nursery_that_says_nonsense_is_replaced(daemon: Daemon, bystander: int) -> None:
    [nursery] = set(daemon.children()) - set(daemon.replicas())
    since = daemon.events()[-1]["seq"]
    with borrowed(nursery) as channel, Crowd(daemon, "bystander", clients=2) as crowd:
        channel.send(b"\xc1 no message")
        assert "said what is no message" in daemon.wait_event("restart", text="nursery", since=since)["text"]
    wait_until(lambda: not alive(nursery), "it is gone")
    assert daemon.call("POST", "/v2/repository/models/odd/unload")[0] == 200
    assert daemon.infer("odd", "x", [1, 2, 3, 4], [1, 4])[0] == 200
    assert crowd.wrong == []
    assert set(crowd.statuses) == {200}, crowd.errors[:3]
    assert "Traceback" not in daemon.log
