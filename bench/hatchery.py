"""Replicas without a daemon around them, in the parts that the daemon is made of: what one costs until its first answer, and what it holds."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.servers import ServerFailed
from wakeful.replicas.replica import Replica
from wakeful.runtime.messages import Compared, Done, Footprint, Load, Placement, Prepare, Prepared, Probed, Ready, Refused
from wakeful.runtime.processes import Processes
from wakeful.tensors import Tensor

PATIENCE = 120.0
Word = TypeVar("Word")


class Listener:
    """Hands a replica's words to whoever awaits them, in order."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[Any] = asyncio.Queue()

    async def next(self, kind: type[Word]) -> Word:
        """The next word of this kind; others before it are passed over."""
        while not isinstance(word := await asyncio.wait_for(self.words.get(), PATIENCE), kind):
            if word is None or isinstance(word, Refused):
                raise ServerFailed(f"the replica failed: {word}")
        return word

    def replica_ready(self, replica: Replica, message: Ready) -> None:
        self.words.put_nowait(message)

    def replica_refused(self, replica: Replica, message: Refused) -> None:
        self.words.put_nowait(message)

    def replica_probed(self, replica: Replica, message: Probed) -> None:
        self.words.put_nowait(message)

    def replica_prepared(self, replica: Replica, message: Prepared | Compared) -> None:
        self.words.put_nowait(message)

    def replica_grown(self, replica: Replica) -> None:
        self.words.put_nowait(Footprint(replica.private_bytes, replica.shared_bytes))

    def replica_ended(self, replica: Replica) -> None:
        self.words.put_nowait(None)


class Hatched:
    """A replica that has given its first answer."""

    def __init__(self, replica: Replica, listener: Listener, seconds: float) -> None:
        self.replica = replica
        self.seconds = seconds
        """From the decision to the first answer."""
        self._listener = listener

    async def private_bytes(self) -> int:
        """What it holds as its own, once it has been measured. Asked once."""
        return (await self._listener.next(Footprint)).private_bytes

    def end(self) -> None:
        self.replica.kill()
        self.replica.close()


class Hatchery:
    """Makes replicas of one model. Within an event loop, which must be uvloop's, as the daemon's is."""

    def __init__(self, model: Path, inputs: Sequence[Tensor]) -> None:
        self._model = model
        self._inputs = inputs
        self._processes = Processes(lambda: 0, lambda backend, reason: None)

    async def prepare(self, directory: Path) -> None:
        listener = Listener()
        replica = Replica(self._processes.next_number(), 0, [], listener)
        self._processes.fork("onnx", replica.number, [], replica.attach)
        replica.prepare(Prepare("onnx", str(self._model), str(directory)))
        await listener.next(Prepared)
        replica.kill()
        replica.close()

    async def fresh(self, prepared: Path | None = None) -> Hatched:
        """One from the nursery."""
        listener = Listener()
        began = time.perf_counter()
        replica = Replica(self._processes.next_number(), 0, self._processes.new_slots(), listener)
        self._processes.fork("onnx", replica.number, replica.slots, replica.attach)
        replica.load(Load("onnx", str(self._model), "cpu", 1, str(prepared or "")))
        return await self._answered(replica, listener, began)

    async def copy(self, original: Replica) -> Hatched:
        """A copy of a live one."""
        listener = Listener()
        began = time.perf_counter()
        replica = Replica(self._processes.next_number(), 1, self._processes.new_slots(), listener)
        original.split_into(replica)
        return await self._answered(replica, listener, began)

    async def _answered(self, replica: Replica, listener: Listener, began: float) -> Hatched:
        await listener.next(Ready)
        done: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        replica.on_done = done.set_result
        placements, offset = [], 0
        for name, datatype, shape, data in self._inputs:
            replica.slots[0].reach(offset + len(data))[offset : offset + len(data)] = bytes(data)
            placements.append(Placement(name, datatype, shape, offset, len(data)))
            offset += -(-len(data) // 64) * 64
        replica.run(1, 0, offset, tuple(placements))
        await done
        return Hatched(replica, listener, time.perf_counter() - began)

    def close(self) -> None:
        self._processes.stop()
