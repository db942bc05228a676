"""Nothing is acknowledged before its answer is published: not when the daemon is killed, stopped or told something else, and not when the broker
goes away."""

import json
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests import onnx_models
from tests.brokers import GROUP, RedisServer, letter, letters, pending, redis_server, send, tensor
from tests.daemon import Daemon, frozen, running, wait_until

MODELS = """
[server]
shutdown_grace_secs = {grace}

[defaults]
prepare = "off"
request_timeout_ms = 60000
max_replicas = 1

[[models]]
id = "ident"
path = "ident.onnx"

[[models]]
id = "narrow"
path = "narrow.onnx"
queue_limit = 1
max_batch_size = 1

[[models]]
id = "hasty"
path = "hasty.onnx"
request_timeout_ms = 300
"""
STREAM = """
[[streams]]
name = "{name}"
endpoint = "{endpoint}"
input_topic = "{name}.in"
output_topic = "{name}.out"
error_topic = "{name}.dead"
{lines}
"""
CONSUMER = f"wakeful-{socket.gethostname()}-0"
"""A daemon on port 0."""


class Bench:
    """A models directory, and daemons that begin and end on it."""

    def __init__(self, directory: Path, server: RedisServer) -> None:
        self.directory, self.server = directory, server
        self.count = 0
        self.config = directory / "models" / "models.toml"
        self.config.parent.mkdir()
        for model in ("ident", "narrow", "hasty"):
            onnx_models.ident(directory / "models" / f"{model}.onnx")
        self.configure()

    def configure(self, grace: float = 10, **streams: str) -> None:
        """Streams by name, with lines of their own."""
        blocks = [STREAM.format(name=name, endpoint=self.server.endpoint, lines=lines) for name, lines in streams.items()]
        self.config.write_text(MODELS.format(grace=grace) + "".join(blocks))

    def reload(self, daemon: Daemon, **streams: str) -> None:
        self.configure(10, **streams)
        seen = max(event["seq"] for event in daemon.events())
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_event("config", text="the configuration was applied", since=seen)

    def daemon(self) -> AbstractContextManager[Daemon]:
        self.count += 1
        return running(self.directory / f"daemon-{self.count}", "--models-dir", str(self.config.parent))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def broker(server: RedisServer) -> Iterator["redis.Redis"]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def bench(server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"), server)


@pytest.fixture(scope="module")
def daemon(bench: Bench) -> Iterator[Daemon]:
    """One for all tests that do not end it. Each has a stream of its own, which comes with a new configuration."""
    with bench.daemon() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def asleep(daemon: Daemon) -> Callable[[str], AbstractContextManager[None]]:
    """Lets a model's process stand still for the time of a block."""
    pids = {model: daemon.wake(model) for model in ("ident", "narrow", "hasty")}
    return lambda model: frozen(pids[model])


Asleep = Callable[[str], AbstractContextManager[None]]


def ask(broker: "redis.Redis", topic: str, *ids: str) -> None:
    for id in ids:
        send(broker, topic, {"id": id, "inputs": [tensor([[1, 2, 3, 4]])]})


def answered(broker: "redis.Redis", topic: str) -> set[str]:
    return {one["id"] for one in letters(broker, topic) if one["status"] == "success"}


def all_of(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


def in_hand(daemon: Daemon, stream: str) -> float:
    return daemon.metric("wakeful_stream_in_flight", stream=stream)


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_more_are_taken_than_may_be_in_hand_and_none_is_acknowledged_before_its_answer(
    bench: Bench, daemon: Daemon, asleep: Asleep, broker: "redis.Redis"
) -> None:
    bench.reload(daemon, cap='model_id = "ident"\nconcurrency = 3')
    with asleep("ident"):
        ask(broker, "cap.in", *all_of(10))
        wait_until(lambda: in_hand(daemon, "cap") == 3, "three are in hand")
        assert pending(broker, "cap.in") == 3
        assert letters(broker, "cap.out") == []
        assert daemon.call("GET", "/health/ready")[0] == 200
        assert daemon.metric("wakeful_stream_consumed_total", stream="cap") == 3
    wait_until(lambda: answered(broker, "cap.out") == set(all_of(10)), "all are answered")
    wait_until(lambda: pending(broker, "cap.in") == 0, "all are acknowledged")


def test_what_was_sent_before_there_was_a_daemon_is_answered(bench: Bench, daemon: Daemon, broker: "redis.Redis") -> None:
    ask(broker, "early.in", *all_of(3))
    bench.reload(daemon, early='model_id = "ident"')
    wait_until(lambda: answered(broker, "early.out") == set(all_of(3)), "all are answered")


def test_what_another_daemon_left_behind_long_ago_is_taken_over(bench: Bench, daemon: Daemon, broker: "redis.Redis") -> None:
    ask(broker, "left.in", "old", "young")
    broker.xgroup_create("left.in", GROUP, id="0")
    taken: Any = broker.xreadgroup(GROUP, "a daemon that is gone", {"left.in": ">"})
    old = taken[0][1][0][0]
    broker.xclaim("left.in", GROUP, "a daemon that is gone", 0, [old], idle=400_000)
    bench.reload(daemon, left='model_id = "ident"')
    wait_until(lambda: answered(broker, "left.out") == {"old"}, "the old one is answered")
    wait_until(lambda: pending(broker, "left.in") == 1, "the young one stays where it is")


def hand_out(broker: "redis.Redis", topic: str, times: int) -> None:
    """As to daemons that die each time."""
    broker.xgroup_create(topic, GROUP, id="0")
    broker.xreadgroup(GROUP, CONSUMER, {topic: ">"})
    for _ in range(times - 1):
        broker.xreadgroup(GROUP, CONSUMER, {topic: "0"})


@pytest.mark.parametrize(("times", "id"), [(5, "poison"), (6, "unknown")])
def test_a_message_that_nobody_survives_is_a_dead_letter(times: int, id: str, bench: Bench, daemon: Daemon, broker: "redis.Redis") -> None:
    """Once more, its envelope is not looked at either."""
    name = f"fatal-{times}"
    ask(broker, f"{name}.in", "poison")
    hand_out(broker, f"{name}.in", times)
    before = daemon.metric("wakeful_requests_total", model="ident", protocol="stream", outcome="ok")
    bench.reload(daemon, **{name: 'model_id = "ident"'})
    assert f"was handed out {times} times and never answered" in letter(broker, f"{name}.dead", id)["error"]
    wait_until(lambda: pending(broker, f"{name}.in") == 0, "it is acknowledged")
    assert daemon.metric("wakeful_requests_total", model="ident", protocol="stream", outcome="ok") == before
    told = daemon.wait_event("stream", text=f"{name}: the message was handed out")["figures"]
    assert (told["stream"], told["times"]) == (name, times)


def test_a_message_that_had_bad_luck_a_few_times_is_answered(bench: Bench, daemon: Daemon, broker: "redis.Redis") -> None:
    ask(broker, "luck.in", "unlucky")
    hand_out(broker, "luck.in", 4)
    bench.reload(daemon, luck='model_id = "ident"')
    wait_until(lambda: answered(broker, "luck.out") == {"unlucky"}, "it is answered")


def test_a_message_that_was_deleted_while_it_was_pending_is_forgotten(bench: Bench, daemon: Daemon, broker: "redis.Redis") -> None:
    ask(broker, "gone.in", "deleted", "kept")
    hand_out(broker, "gone.in", 1)
    entries: Any = broker.xrange("gone.in")
    broker.xdel("gone.in", entries[0][0])
    bench.reload(daemon, gone='model_id = "ident"')
    wait_until(lambda: pending(broker, "gone.in") == 0, "nothing is pending")
    assert answered(broker, "gone.out") == {"kept"}


def test_a_refusal_that_passes_is_tried_again(bench: Bench, daemon: Daemon, asleep: Asleep, broker: "redis.Redis") -> None:
    """The queue is full while the model's process stands still."""
    bench.reload(daemon, again='model_id = "narrow"\nconcurrency = 8')
    with asleep("narrow"):
        ask(broker, "again.in", *all_of(8))
        wait_until(lambda: daemon.metric("wakeful_requests_total", model="narrow", outcome="overloaded") > 4, "some are refused")
    wait_until(lambda: answered(broker, "again.out") == set(all_of(8)), "all are answered")
    assert not broker.exists("again.dead")


def test_a_message_waits_no_longer_than_its_model_allows(bench: Bench, daemon: Daemon, asleep: Asleep, broker: "redis.Redis") -> None:
    bench.reload(daemon, late='model_id = "hasty"')
    with asleep("hasty"):
        ask(broker, "late.in", "late")
        assert letter(broker, "late.dead", "late")["code"] == "timeout"


# ── the configuration ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def connected(daemon: Daemon, stream: str) -> bool:
    return daemon.metric("wakeful_stream_connected", stream=stream) == 1


def told(daemon: Daemon, stream: str, state: str) -> list[str]:
    """The lines that tell of this state of a stream."""
    events = [event for event in daemon.events(kind="stream") if event["figures"]["stream"] == stream]
    return [event["text"] for event in events if event["figures"]["state"] == state]


def test_streams_come_change_and_go(bench: Bench, daemon: Daemon, asleep: Asleep, broker: "redis.Redis") -> None:
    ident = 'model_id = "ident"\n'
    bench.reload(daemon, a=ident, b=ident)
    wait_until(lambda: connected(daemon, "a") and connected(daemon, "b"), "both are connected")
    with asleep("ident"):
        ask(broker, "a.in", "m0")
        wait_until(lambda: in_hand(daemon, "a") == 1, "it is in hand")
        bench.configure(a=f"{ident}concurrency = 2", c=ident)
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not connected(daemon, "b"), "one goes")
    wait_until(lambda: connected(daemon, "c"), "another comes")
    assert answered(broker, "a.out") == {"m0"}
    ask(broker, "c.in", "m1")
    ask(broker, "b.in", "m2")
    wait_until(lambda: answered(broker, "c.out") == {"m1"}, "it is answered")
    assert pending(broker, "b.in") == 0
    with asleep("ident"):
        ask(broker, "a.in", *all_of(9))
        wait_until(lambda: in_hand(daemon, "a") == 2, "the new limit holds")


def test_topics_are_not_created_where_that_is_not_wanted(bench: Bench, daemon: Daemon, broker: "redis.Redis") -> None:
    bench.reload(daemon, bare='model_id = "ident"\nauto_create_topics = false')
    wait_until(lambda: told(daemon, "bare", "lost"), "it is told")
    assert "requires the key to exist" in told(daemon, "bare", "lost")[0]
    assert not broker.exists("bare.in")
    ask(broker, "bare.in", "m0")
    wait_until(lambda: answered(broker, "bare.out") == {"m0"}, "it is served as soon as it is there")


def test_a_group_that_was_deleted_is_made_again(bench: Bench, daemon: Daemon, broker: "redis.Redis") -> None:
    bench.reload(daemon, group='model_id = "ident"')
    wait_until(lambda: connected(daemon, "group"), "it is there")
    broker.delete("group.in")
    wait_until(lambda: len(told(daemon, "group", "connected")) == 2, "it is there again")
    ask(broker, "group.in", "m0")
    wait_until(lambda: answered(broker, "group.out") == {"m0"}, "it is answered")


def test_a_wrong_password_is_told_without_the_password(bench: Bench, daemon: Daemon, server: RedisServer) -> None:
    bench.configure(wrong="")
    bench.config.write_text(bench.config.read_text().replace("redis://", "redis://somebody:hush-hush@"))
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: told(daemon, "wrong", "lost"), "it is told")
    assert f"redis://...@127.0.0.1:{server.port} cannot be used" in told(daemon, "wrong", "lost")[0]
    assert "hush" not in daemon.log + json.dumps(daemon.events())


def test_an_output_that_cannot_be_written_keeps_the_message(bench: Bench, daemon: Daemon, broker: "redis.Redis") -> None:
    """It is the operator's fault: nothing is dropped for it, and messages that come again for that reason are not taken for poison."""
    broker.set("odd.out", "not a stream")
    bench.reload(daemon, odd='model_id = "ident"')
    ask(broker, "odd.in", "m0")
    wait_until(lambda: daemon.metric("wakeful_stream_consumed_total", stream="odd") >= 3, "it is tried again")
    assert "WRONGTYPE" in told(daemon, "odd", "lost")[0]
    rows: Any = broker.xpending_range("odd.in", GROUP, "-", "+", 1)
    assert rows[0]["times_delivered"] <= 2
    broker.delete("odd.out")
    wait_until(lambda: answered(broker, "odd.out") == {"m0"}, "it is answered")
    assert not broker.exists("odd.dead")


# ── the daemon ends, and the broker goes away ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_daemon_that_is_killed_goes_on_where_it_was(bench: Bench, broker: "redis.Redis") -> None:
    bench.configure(killed='model_id = "ident"\nconcurrency = 4')
    ids = all_of(40)
    with bench.daemon() as daemon:
        pid = daemon.wake("ident")
        ask(broker, "killed.in", *ids[:20])
        wait_until(lambda: len(answered(broker, "killed.out")) == 20, "the first ones are answered")
        with frozen(pid):
            ask(broker, "killed.in", *ids[20:])
            wait_until(lambda: in_hand(daemon, "killed") == 4, "some are in hand")
            daemon.stop(signal.SIGKILL)
    assert len(answered(broker, "killed.out")) == 20
    with bench.daemon():
        wait_until(lambda: answered(broker, "killed.out") == set(ids), "all are answered")
        wait_until(lambda: pending(broker, "killed.in") == 0, "all are acknowledged")
    assert len(letters(broker, "killed.out")) == 40


def test_stopping_finishes_what_is_in_hand_and_leaves_the_rest(bench: Bench, broker: "redis.Redis") -> None:
    """First with time enough, then without; then the last ones are answered by the next daemon."""
    bench.configure(stopped='model_id = "ident"\nconcurrency = 2')
    with bench.daemon() as daemon:
        with frozen(daemon.wake("ident")):
            ask(broker, "stopped.in", *all_of(6))
            wait_until(lambda: in_hand(daemon, "stopped") == 2, "two are in hand")
            daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(30) == 0
    assert (len(answered(broker, "stopped.out")), pending(broker, "stopped.in")) == (2, 0)
    bench.configure(grace=0.3, stopped='model_id = "ident"\nconcurrency = 2')
    with bench.daemon() as daemon:
        wait_until(lambda: answered(broker, "stopped.out") == set(all_of(6)), "the others are answered later")
        with frozen(daemon.replica()):
            ask(broker, "stopped.in", "last")
            wait_until(lambda: in_hand(daemon, "stopped") == 1, "it is in hand")
            assert daemon.stop() == 0
    assert "1 messages stay with their brokers" in daemon.log
    assert (len(letters(broker, "stopped.out")), letters(broker, "stopped.dead"), pending(broker, "stopped.in")) == (6, [], 1)


def test_a_broker_that_is_away_at_first_and_goes_and_comes_back(bench: Bench, broker: "redis.Redis", server: RedisServer) -> None:
    """Messages that are in hand then are answered when it is back, and the daemon is ready all the time."""
    bench.configure(grace=60, stopped='model_id = "ident"')
    server.stop()
    with bench.daemon() as daemon:
        wait_until(lambda: told(daemon, "stopped", "lost"), "it is told")
        assert "tried again until it can" in daemon.log
        assert daemon.call("GET", "/health/ready")[0] == 200
        pid = daemon.wake("ident")
        server.start()
        wait_until(lambda: "last" in answered(broker, "stopped.out"), "it goes on where another one was")
        with frozen(pid):
            ask(broker, "stopped.in", "within")
            wait_until(lambda: in_hand(daemon, "stopped") == 1, "it is in hand")
            server.stop()
            wait_until(lambda: len(told(daemon, "stopped", "lost")) == 2, "the loss is told")
            assert in_hand(daemon, "stopped") == 0
            assert not connected(daemon, "stopped")
        assert daemon.call("GET", "/health/ready")[0] == 200
        assert daemon.infer("ident", "x", [1, 2, 3, 4], [1, 4])[0] == 200
        server.start()
        ask(broker, "stopped.in", "after")
        wait_until(lambda: {"within", "after"} <= answered(broker, "stopped.out"), "both are answered")
        server.stop()
        wait_until(lambda: len(told(daemon, "stopped", "lost")) == 3, "the loss is told")
        assert daemon.stop() == 0  # at once, though it may wait for a minute
