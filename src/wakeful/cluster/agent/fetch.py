"""Models come from their stores into the cache by child processes, a few at once, each model once for all who ask for it."""

import asyncio
import os
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from wakeful.cluster.agent.cache import Cache, Use
from wakeful.cluster.agent.fetching import Done, Failed, Order, Progress, Word

ENVIRONMENT = (
    "PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)
"""What a process that fetches has of the daemon's environment: no key, no token."""
IDENTITY = (
    "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST",
    "AZURE_STORAGE_ACCOUNT_NAME", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCE_METADATA_HOST",
)
"""The pod's own identity, for models that have no Secret."""
LARGEST_ORDER = 32 * 1024
"""Bytes: half of what a pipe holds, so that it is written without waiting."""
_TRIES = 3
"""Of an artifact that another pod evicts between its fetch and its use."""
_LAST_LINES = 3
_WORDS: msgspec.json.Decoder[Word] = msgspec.json.Decoder(Word)


class FetchFailed(Exception):
    """Names the URI, and says what was tried and what to do."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"{uri}: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class FetchLimits:
    downloads: int = 4
    """At once; others wait."""
    seconds: float = 3600.0
    """Longest time of one, without the wait for its turn."""


class _Flight:
    """One fetch, and how many wait for it."""

    def __init__(self, task: asyncio.Task[str]) -> None:
        self.task = task
        self.waiters = 0


class Fetcher:
    """`running` shows what is being fetched, by URI."""

    def __init__(self, cache: Cache, limits: FetchLimits, claims: Path) -> None:
        """`claims`: where persistent volume claims are mounted, each in a directory of its name."""
        self.running: dict[str, Progress] = {}
        self.came = 0
        """Bytes, by all fetches together."""
        self._cache = cache
        self._limits = limits
        self._claims = claims
        self._permits = asyncio.Semaphore(self._limits.downloads)
        self._flights: dict[bytes, _Flight] = {}

    async def fetch(self, uri: str, want_revision: str = "", secret: Mapping[str, str] | None = None) -> Use:
        """The model's files, to be released when nobody loads from them any more. What is in the cache needs no store.

        `want_revision`: other bytes are refused; empty: any. Raises FetchFailed.
        """
        order = Order(uri, str(self._cache.directory), self._cache.limit, str(self._claims), want_revision, dict(secret or {}))
        revision = want_revision
        try:
            for _ in range(_TRIES):
                if revision and (use := await self._use(revision)) is not None:
                    return use
                revision = await self._together(order)
            use = await self._use(revision)
        except (OSError, ValueError) as error:
            raise FetchFailed(uri, str(error)) from error
        if use is None:
            raise FetchFailed(uri, f"it was evicted from {self._cache.directory} {_TRIES} times before it could be used: the cache is too small")
        return use

    async def close(self) -> None:
        """End all that is under way; those who wait for it are cancelled."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _use(self, revision: str) -> Use | None:
        looking = asyncio.ensure_future(asyncio.to_thread(self._cache.use, revision))
        try:
            return await asyncio.shield(looking)
        except asyncio.CancelledError:
            use = await looking  # a thread cannot be cancelled, and what it finds would stay in use for ever
            if use is not None:
                use.release()
            raise

    async def _together(self, order: Order) -> str:
        """The revision, by the fetch that is under way for the same order, or by a new one. It ends when the last who waits for it leaves."""
        key = msgspec.json.encode(order)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(self._in_turn(order)))
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters:
                if self._flights.get(key) is flight:
                    del self._flights[key]
                flight.task.cancel()
                await asyncio.wait([flight.task])

    async def _in_turn(self, order: Order) -> str:
        async with self._permits:
            try:
                async with asyncio.timeout(self._limits.seconds):
                    return await self._by_child(order)
            except TimeoutError:
                raise FetchFailed(order.uri, f"it took longer than {self._limits.seconds:g} s{self._so_far(order.uri)}") from None
            finally:
                self.running.pop(order.uri, None)

    def _so_far(self, uri: str) -> str:
        progress = self.running.get(uri)
        return f", {progress.fetched} of {progress.total} bytes had come" if progress is not None else ""

    async def _by_child(self, order: Order) -> str:
        text = msgspec.json.encode(order) + b"\n"
        if len(text) > LARGEST_ORDER:
            raise FetchFailed(order.uri, f"its URI and Secret have {len(text)} bytes together, and {LARGEST_ORDER} are the most")
        reader, writer = os.pipe()
        with os.fdopen(writer, "wb", buffering=0) as lifeline, tempfile.TemporaryFile() as printed:  # whoever closes the lifeline ends the process
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", "wakeful.cluster.agent.fetch_main", stdin=reader, stdout=asyncio.subprocess.PIPE, stderr=printed,
                    env=self._environment(bool(order.secret)), start_new_session=True,
                )
            finally:
                os.close(reader)
            try:
                lifeline.write(text)
                end = await self._last_word(process, order.uri)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.communicate()
                await asyncio.to_thread(self._cache.sweep)
            if isinstance(end, Done):
                return end.revision
            if isinstance(end, Failed):
                raise FetchFailed(order.uri, end.reason)
            status = process.returncode or 0
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            raise FetchFailed(order.uri, f"the process that fetches it {how}{_printed(printed.fileno())}")

    async def _last_word(self, process: asyncio.subprocess.Process, uri: str) -> Done | Failed | None:
        assert process.stdout is not None  # it was asked for
        with suppress(ValueError, msgspec.MsgspecError):  # a line that is too long, or no word: the process is not what it was
            async for line in process.stdout:
                word = _WORDS.decode(line)
                if not isinstance(word, Progress):
                    return word
                before = self.running.get(uri)
                self.came += word.fetched - (before.fetched if before is not None else 0)
                self.running[uri] = word
        return None

    def _environment(self, has_secret: bool) -> dict[str, str]:
        names = ENVIRONMENT if has_secret else (*ENVIRONMENT, *IDENTITY)
        own = {name: os.environ[name] for name in names if name in os.environ}
        return own | {"HOME": str(self._cache.directory), "TMPDIR": str(self._cache.directory)}


def _printed(descriptor: int) -> str:
    """The last lines that the process has printed."""
    with open(os.dup(descriptor), errors="replace") as printed:
        printed.seek(0)
        lines = deque((line.strip() for line in printed if line.strip()), _LAST_LINES)
    return f"; it printed: {' | '.join(lines)}" if lines else ""
