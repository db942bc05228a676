"""A way between two of the parts that may be slow, or cut: bytes are passed on as they are, so TLS goes through."""

import asyncio
import threading
import time
from contextlib import suppress

CHUNK = 1 << 16


class Proxy:
    """Listens on an address, and passes on to the first of `targets` that takes the connection. `delay`: seconds that what clients send takes. Both
    may be set at any time: targets count for new connections. `spread`: to each of them in turn."""

    def __init__(self, host: str, port: int, targets: list[tuple[str, int]], *, delay: float = 0.0, spread: bool = False) -> None:
        self.address = (host, port)
        self.delay = delay
        self.targets = targets
        self._spread, self._taken = spread, 0
        self._ready = threading.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="proxy", daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    def cut(self) -> None:
        """All connections that there are now; new ones are taken."""
        self._loop.call_soon_threadsafe(self._abort)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)

    async def _run(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accepted, *self.address)
        self._ready.set()
        await self._ended.wait()
        server.close()
        self._abort()

    def _abort(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Noted at once: a task that is cancelled before it begins closes nothing."""
        self._open.add(writer)
        if self._ended.is_set():
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for host, port in self._in_turn():
                with suppress(OSError):
                    theirs, ours = await asyncio.open_connection(host, port)
                    self._open.add(ours)
                    await asyncio.gather(self._pass(reader, ours, slow=True), self._pass(theirs, writer, slow=False))
                    self._open.discard(ours)
                    return
        finally:
            self._open.discard(writer)
            writer.close()

    def _in_turn(self) -> list[tuple[str, int]]:
        targets = self.targets
        first = self._taken % len(targets) if self._spread and targets else 0
        self._taken += 1
        return targets[first:] + targets[:first]

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slow: bool) -> None:
        """A delay keeps the order, and takes no speed: what is read is sent when its time has come."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.create_task(_send(queue, writer))
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                queue.put_nowait((time.monotonic() + (self.delay if slow else 0.0), data))
        queue.put_nowait((time.monotonic(), b""))
        await sending


async def _send(queue: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(due - time.monotonic(), 0.0))
            if not data:
                break
            writer.write(data)
            await writer.drain()
    writer.close()
