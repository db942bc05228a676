"""A nursery and its replicas as real processes, without a daemon around them."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import onnx_models
from tests.daemon import alive, wait_until
from wakeful.errors import Unavailable
from wakeful.runtime import channel, nursery
from wakeful.runtime.arena import Slot
from wakeful.runtime.channel import Channel
from wakeful.runtime.messages import Awake, Done, Footprint, FromReplica, Hello, Load, Placement, Ready, Refused, Run, Split, Stop
from wakeful.runtime.nursery import Nursery
from wakeful.runtime.processes import Death, Processes

PATIENCE = 30.0


class Witness:
    """Observes a nursery, and waits for what it says."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self._news = asyncio.Event()

    def _note(self, *words: Any) -> None:
        self.said.append(words)
        self._news.set()

    def nursery_awake(self, message: Awake) -> None:
        self._note("awake", message.library, message.providers)

    def nursery_lost(self, pid: int, reason: str) -> None:
        self._note("lost", pid, reason)

    def nursery_broken(self, reason: str) -> None:
        self._note("broken", reason)

    def replica_exited(self, pid: int, status: int) -> None:
        self._note("exited", pid, status)

    def fork_failed(self, replica: int, reason: str) -> None:
        self._note("fork_failed", replica, reason)

    def replica_output(self, line: str) -> None:
        self._note("output", line)

    async def hear(self, *words: Any) -> tuple[Any, ...]:
        """Wait for the first word, or words, and take them out."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for said in self.said:
                    if said[: len(words)] == words:
                        self.said.remove(said)
                        return said
                self._news.clear()
                await self._news.wait()


class Talk:
    """The daemon's end of one replica."""

    def __init__(self, slots: int = 2) -> None:
        self.slots = [Slot.create() for _ in range(slots)]
        self._messages: asyncio.Queue[FromReplica | None] = asyncio.Queue()
        self.channel: Channel[FromReplica] | None = None
        self.pid = 0

    def attach(self, sock: socket.socket) -> None:
        self.channel = Channel(sock, channel.decoder(FromReplica), self._messages.put_nowait, lambda: self._messages.put_nowait(None))

    def say(self, message: Any, descriptors: list[int] | None = None) -> None:
        assert self.channel is not None
        self.channel.send(message, descriptors or ())

    async def hear(self) -> FromReplica | None:
        """The next message; None: the channel has ended."""
        while isinstance(message := await asyncio.wait_for(self._messages.get(), PATIENCE), Footprint):
            pass  # comes whenever the replica has time to measure itself
        return message

    async def hello(self) -> int:
        message = await self.hear()
        assert isinstance(message, Hello)
        self.pid = message.pid
        return message.pid

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        for slot in self.slots:
            slot.close()


def play(scene: Callable[[Nursery, Witness], Coroutine[Any, Any, None]], backend: str = "onnx") -> None:
    async def whole() -> None:
        witness = Witness()
        kin = Nursery(backend, witness)
        kin.start()
        try:
            await scene(kin, witness)
        finally:
            kin.stop()

    asyncio.run(whole())


async def forked(kin: Nursery, number: int = 1) -> Talk:
    talk = Talk()
    kin.fork(number, talk.slots, 0, talk.attach)
    await talk.hello()
    return talk


async def loaded(kin: Nursery, path: Path, number: int = 1) -> Talk:
    talk = await forked(kin, number)
    talk.say(Load("onnx", str(path), "cpu", 1))
    assert isinstance(await talk.hear(), Ready)
    return talk


async def run(talk: Talk, number: int, value: float) -> float:
    """x = [[value] * 4] through a model that gives it back."""
    data = np.full((1, 4), value, np.float32).tobytes()
    talk.slots[0].reach(16)[:16] = data
    talk.say(Run(number, 0, 64, (Placement("x", "FP32", (1, 4), 0, 16),)))
    message = await talk.hear()
    assert isinstance(message, Done)
    [output] = message.outputs
    end = output.offset + output.nbytes
    return float(np.frombuffer(talk.slots[0].reach(end)[output.offset : end], np.float32)[0])


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def print_as(pid: int, text: bytes) -> None:
    """Write to another process's standard output."""
    with Path(f"/proc/{pid}/fd/1").open("wb", buffering=0) as output:
        output.write(text)


def test_it_wakes_with_the_name_of_its_library() -> None:
    async def scene(kin: Nursery, witness: Witness) -> None:
        _, library, providers = await witness.hear("awake")
        assert library.startswith("onnxruntime ")
        assert "CPUExecutionProvider" in providers

    play(scene)


def test_orders_given_before_it_is_awake_are_kept(tmp_path: Path) -> None:
    path = onnx_models.ident(tmp_path / "ident.onnx")

    async def scene(kin: Nursery, witness: Witness) -> None:
        talk = Talk()
        kin.fork(1, talk.slots, 0, talk.attach)  # it has not imported anything yet
        talk.say(Load("onnx", str(path), "cpu", 1))
        assert await talk.hello() > 0
        assert isinstance(await talk.hear(), Ready)
        assert await run(talk, 1, 7.0) == 7.0
        talk.close()

    play(scene)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda talk: talk.say(Stop()), 0),
        (lambda talk: talk.channel.close(), 0),
        (lambda talk: os.kill(talk.pid, signal.SIGKILL), -signal.SIGKILL),
        (lambda talk: os.kill(talk.pid, signal.SIGSEGV), -signal.SIGSEGV),
    ],
    ids=["told to stop", "channel closed", "SIGKILL", "SIGSEGV"],
)
def test_each_end_is_reported_with_its_status(end: Callable[[Any], None], expected: int) -> None:
    async def scene(kin: Nursery, witness: Witness) -> None:
        talk = await forked(kin)
        end(talk)
        _, _, status = await witness.hear("exited", talk.pid)
        assert os.waitstatus_to_exitcode(status) == expected
        assert not alive(talk.pid)
        talk.close()

    play(scene)


def test_it_is_started_again_after_it_was_killed_and_its_replicas_live_on(tmp_path: Path) -> None:
    path = onnx_models.ident(tmp_path / "ident.onnx")

    async def scene(kin: Nursery, witness: Witness) -> None:
        old = await loaded(kin, path)
        await witness.hear("awake")
        first = kin.pid
        os.kill(first, signal.SIGKILL)
        assert await witness.hear("lost") == ("lost", first, "killed by signal 9")
        await witness.hear("awake")
        assert kin.pid != first
        assert await run(old, 1, 3.0) == 3.0
        new = await loaded(kin, path, 2)
        assert await run(new, 1, 4.0) == 4.0
        for talk in (old, new):
            talk.close()

    play(scene)


def test_however_often_it_is_killed_no_descriptor_is_left() -> None:
    """Its lifeline is let go as soon as none of its replicas is left."""

    async def scene(kin: Nursery, witness: Witness) -> None:
        await witness.hear("awake")
        held = len(os.listdir("/proc/self/fd"))
        for _ in range(4):
            os.kill(kin.pid, signal.SIGKILL)
            await witness.hear("lost")
            await witness.hear("awake")
        assert len(os.listdir("/proc/self/fd")) == held

    play(scene)


def test_without_a_nursery_the_channel_of_a_wanted_replica_ends() -> None:
    async def scene(kin: Nursery, witness: Witness) -> None:
        await witness.hear("awake")
        os.kill(kin.pid, signal.SIGKILL)
        await witness.hear("lost")
        talk = Talk()
        kin.fork(1, talk.slots, 0, talk.attach)
        heard = await talk.hear()  # refused at once, or forked by the next one
        assert heard is None or isinstance(heard, Hello)
        talk.close()

    play(scene)


def test_a_library_that_does_not_import_is_reported_once_and_tried_again_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nursery, "RESTART_SECONDS", (3600.0,))

    async def ended(pid: int) -> None:
        await asyncio.to_thread(wait_until, lambda: not Path(f"/proc/{pid}").exists(), "it is reaped")

    async def scene(kin: Nursery, witness: Witness) -> None:
        first = kin.pid
        _, reason = await witness.hear("broken")
        assert "nonsense" in reason
        await ended(first)
        talk = Talk()
        kin.fork(1, talk.slots, 0, talk.attach)
        second = kin.pid
        assert await talk.hear() is None
        assert second != first
        await ended(second)
        with pytest.raises(Unavailable, match="nonsense"):
            kin.fork(1, talk.slots, 0, talk.attach)
        assert kin.pid == second, "not again so soon"
        assert not {"awake", "lost", "broken"} & {said[0] for said in witness.said}
        talk.close()

    play(scene, backend="nonsense")


def test_a_copy_of_a_live_replica_answers_for_itself_and_is_reaped_by_the_nursery(tmp_path: Path) -> None:
    path = onnx_models.ident(tmp_path / "ident.onnx")

    async def scene(kin: Nursery, witness: Witness) -> None:
        original, copy = await loaded(kin, path), Talk()
        ours, theirs = channel.pair()
        original.say(Split(2))
        original.say(Split(2), [theirs.fileno(), *(slot.fd for slot in copy.slots)])
        theirs.close()
        copy.attach(ours)
        assert await copy.hello() != original.pid
        assert isinstance(await copy.hear(), Ready)
        assert [await run(original, 1, 1.0), await run(copy, 1, 2.0)] == [1.0, 2.0]
        assert parent_of(copy.pid) == kin.pid
        os.kill(original.pid, signal.SIGKILL)
        assert await original.hear() is None  # the copy does not hold the original's channel open
        assert await run(copy, 2, 3.0) == 3.0
        copy.say(Stop())
        await witness.hear("exited", copy.pid)
        for talk in (original, copy):
            talk.close()

    play(scene)


def test_a_broken_model_is_refused_and_the_replica_can_try_again(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    good = onnx_models.ident(tmp_path / "good.onnx")

    async def scene(kin: Nursery, witness: Witness) -> None:
        talk = await forked(kin)
        talk.say(Load("onnx", str(broken), "cpu", 1))
        assert isinstance(await talk.hear(), Refused)
        talk.say(Load("onnx", str(good), "cpu", 1))
        assert isinstance(await talk.hear(), Ready)
        talk.close()

    play(scene)


def test_what_children_print_is_passed_on(tmp_path: Path) -> None:
    async def scene(kin: Nursery, witness: Witness) -> None:
        print_as(kin.pid, b"first line\nsecond \xff line\n")
        await witness.hear("output", "first line")
        await witness.hear("output", "second \ufffd line")

    play(scene)


def test_nothing_is_left_after_it_was_stopped() -> None:
    pids = []

    async def scene(kin: Nursery, witness: Witness) -> None:
        talk = await forked(kin)
        pids.extend([kin.pid, talk.pid])
        talk.close()
        await witness.hear("exited", talk.pid)

    play(scene)
    assert not any(alive(pid) for pid in pids)


def test_replicas_of_a_dead_nursery_are_reaped_and_explained(tmp_path: Path) -> None:
    """They become children of whoever started the nursery."""
    path = onnx_models.ident(tmp_path / "ident.onnx")

    async def scene() -> None:
        lost: asyncio.Queue[str] = asyncio.Queue()
        processes = Processes(lambda: 0, lambda _backend, reason: lost.put_nowait(reason))
        kin = processes.warm("onnx")
        talk = await loaded(kin, path)
        silent = await forked(kin, 2)
        os.kill(kin.pid, signal.SIGKILL)
        await asyncio.wait_for(lost.get(), PATIENCE)
        for one in (talk, silent):
            os.kill(one.pid, signal.SIGKILL)
            assert await one.hear() is None
        told: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        processes.explain(talk.pid, told.set_result)
        death = await asyncio.wait_for(told, PATIENCE)
        assert death.kind == "signal"
        assert "SIGKILL" in death.text
        there = Path(f"/proc/{silent.pid}").exists  # nobody asks how this one died
        await asyncio.to_thread(wait_until, lambda: not there(), "it is reaped all the same")
        for one in (talk, silent):
            one.close()
        processes.stop()

    asyncio.run(scene())


def test_a_kill_for_lack_of_memory_is_told_from_any_other() -> None:
    async def scene() -> None:
        kills = 5
        processes = Processes(lambda: kills, lambda *_: None)
        causes = []
        for status, more in ((signal.SIGKILL, 0), (signal.SIGKILL, 1), (signal.SIGKILL, 0), (signal.SIGSEGV, 1), (3 << 8, 0)):
            kills += more
            processes.report(99, int(status))
            processes.explain(99, lambda death: causes.append(death.kind))
        assert causes == ["signal", "oom", "signal", "signal", "exit"]
        processes.stop()

    asyncio.run(scene())
