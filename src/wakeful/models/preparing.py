"""A prepared copy of one model: made, compared with the model as it was shipped, and weighed against it. Each step has a process of its own."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from wakeful.clock import monotonic
from wakeful.config.kinds import library_of
from wakeful.config.settings import ModelSettings
from wakeful.errors import Unavailable
from wakeful.models.errand import NICE, Errand
from wakeful.prepared.cache import PreparedCache
from wakeful.runtime.messages import Compare, Compared, Load, Prepare, Prepared, Ready
from wakeful.runtime.processes import Processes

PATIENCE = 4
"""A preparation may take so many times as long as a load: it loads the model more than once."""
MEASURE_SECONDS = 60.0
"""Longest wait for exact figures of memory, which come once a draft has been replaced: seconds, and more of them where all cores are busy."""


class Opened(NamedTuple):
    """What a load took."""

    seconds: float
    private_bytes: int
    prepared: bool
    """By the copy, and not as shipped."""


async def write_copy(
    processes: Processes, cache: PreparedCache, directory: Path, settings: ModelSettings, identity: str, nice: int = NICE,
) -> tuple[Prepared, Path | None]:
    """Make the copy in `directory`, which `cache.begin` gave, and take it into the cache: None where it must not be used.

    Raises why it cannot be made.
    """
    errand = Errand.forked(processes, settings.backend, nice)
    order = Prepare(settings.backend, str(settings.path), str(directory))
    try:
        done = await errand.answer(lambda: errand.replica.prepare(order), settings.life.load_timeout * PATIENCE)
        assert isinstance(done, Prepared)
        library = library_of(settings.backend)
        return done, await asyncio.to_thread(cache.commit, directory, settings.path, identity, settings.backend, library)
    except TimeoutError:
        raise Unavailable("preparing it took too long") from None
    finally:
        errand.end()
        await asyncio.to_thread(cache.discard, directory)


async def compare(processes: Processes, settings: ModelSettings, copy: Path) -> Compared:
    """Raises why they cannot be compared."""
    errand = Errand.forked(processes, settings.backend, nice=0)
    order = Compare(settings.backend, str(settings.path), str(copy))
    try:
        compared = await errand.answer(lambda: errand.replica.compare(order), settings.life.load_timeout * PATIENCE)
    except TimeoutError:
        raise Unavailable("comparing it took too long") from None
    finally:
        errand.end()
    assert isinstance(compared, Compared)
    return compared


async def open_once(processes: Processes, settings: ModelSettings, copy: Path | None = None) -> Opened:
    """Load it on one thread, by its copy or as shipped, at the usual priority. Raises why it does not load."""
    errand = Errand.forked(processes, settings.backend, nice=0)
    order = Load(settings.backend, str(settings.path), "cpu", 1, "" if copy is None else str(copy))
    try:
        began = monotonic()
        ready = await errand.answer(lambda: errand.replica.load(order), settings.life.load_timeout)
        seconds = monotonic() - began
        assert isinstance(ready, Ready)
        return Opened(seconds, await errand.measured(MEASURE_SECONDS), ready.prepared)
    except TimeoutError:
        raise Unavailable(f"a load took longer than {settings.life.load_timeout:g} s") from None
    finally:
        errand.end()
