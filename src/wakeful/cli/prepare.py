"""`wakeful prepare`: the copies that load faster, made now instead of after a first load, in the processes that the daemon would have for it."""

import asyncio
import difflib
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from wakeful.cli.client import Failure
from wakeful.cli.looks import Looks, printable
from wakeful.cli.options import add_options, options_of
from wakeful.cli.output import Output, add_output_options, output_of
from wakeful.cli.parser import DONE, NO, WRONG_USE, Parser
from wakeful.cli.status import NO_MODEL
from wakeful.config.kinds import KINDS, library_of
from wakeful.config.load import load
from wakeful.config.problems import ConfigError
from wakeful.config.settings import ModelSettings, Settings
from wakeful.errors import Unavailable, WakefulError
from wakeful.memory.budget import oom_kills
from wakeful.models.errands import SMALLEST
from wakeful.models.preparing import Opened, compare, open_once, write_copy
from wakeful.prepared.cache import PreparedCache
from wakeful.prepared.identity import identity_of
from wakeful.runtime.messages import Compared, Confinement
from wakeful.runtime.processes import Processes
from wakeful.telemetry.units import show_bytes, show_seconds

LOADS = 2
"""Loads of each kind, of which the quicker one counts: the first may have read the file from a disk."""


class Told(NamedTuple):
    """What came of one model."""

    good: bool
    text: str
    data: dict[str, Any]


def add_arguments(parser: Parser) -> None:
    parser.usage = f"{parser.prog} MODEL ... [option ...]"
    parser.add_argument("models", nargs="*", metavar="MODEL", help="a name, a name:version, or a pattern such as 'emb-*'")
    parser.add_argument("--all", action="store_true", help="every model whose copy is worth its place: files of 1 MiB and more, for the CPU")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--verify", action="store_true", help="make none, and compare those that are there with their models")
    what.add_argument("--clean", action="store_true", help="make none, and remove those that are there")
    add_output_options(parser)
    add_options(parser)


def run(arguments: Namespace) -> int:
    output = output_of(arguments)
    try:
        if bool(arguments.models) == arguments.all:
            raise Failure("invalid_input", "which models?", WRONG_USE, "name some, or say --all")
        settings = load(options_of(arguments))
        wanted = chosen(settings.models, arguments.models)
    except Failure as failure:
        output.fail(failure)
        return failure.exit
    except ConfigError as error:
        return output.fail_configuration(error)
    told = asyncio.run(_work(settings, wanted, arguments, output))
    if output.json:
        output.result("prepare", {"models": [one.data for one in told]}, lambda _: ())
    elif not told:
        output.note("no model has a copy that would be worth its place")
    return DONE if all(one.good for one in told) else NO


def chosen(models: Sequence[ModelSettings], names: Sequence[str]) -> list[ModelSettings]:
    """Those that are meant; without a name, all that a daemon would prepare by itself. Raises Failure for a name that is nobody's."""
    if not names:
        return [model for model in models if not why_not(model) and not _is_small(model)]
    found: dict[str, ModelSettings] = {}
    for name in names:
        fitting = {model.key: model for model in models if fnmatchcase(model.key, name) or fnmatchcase(model.id, name)}
        if not fitting:
            near = difflib.get_close_matches(name, [model.key for model in models], n=1)
            raise Failure("not_found", f"there is no model {name}", NO_MODEL, f"did you mean {near[0]}?" if near else None)
        found |= fitting
    return list(found.values())


def why_not(model: ModelSettings) -> str:
    """Why no copy is made of it, whatever its file holds; empty where one may be."""
    if not KINDS[model.backend].prepares:
        return f"models of {model.backend} load as they are"
    if model.runtime.prepare == "off":
        return 'prepare = "off"'
    return "copies are for the CPU" if model.runtime.device.startswith("cuda") else ""


def _is_small(model: ModelSettings) -> bool:
    try:
        return model.path.stat().st_size < SMALLEST
    except OSError:
        return False


async def _work(settings: Settings, models: Iterable[ModelSettings], arguments: Namespace, output: Output) -> list[Told]:
    cache = PreparedCache(settings.cache.directory, settings.cache.limit)
    confinement = Confinement(**asdict(settings.server.workers))
    processes = Processes(
        lambda: oom_kills() or 0, lambda _, reason: output.note(reason), confinement, settings.secret_variables,
        lambda _, line: output.note(f"  {printable(line)}"),
    )
    each = _Cleaning(cache) if arguments.clean else _Making(processes, cache, output.looks, verify=arguments.verify)
    models = list(models)
    width = max((len(model.key) for model in models), default=0)
    told = []
    try:
        for model in models:
            told.append(await _one(model, each.treat))
            output.line(f"{printable(model.key):<{width}}   {printable(told[-1].text)}")
    finally:
        processes.stop()
        cache.close()
    return told


async def _one(model: ModelSettings, treat: Callable[[ModelSettings, str], Awaitable[Told]]) -> Told:
    reason = why_not(model)
    try:
        if reason:
            raise Unavailable(reason)
        told = await treat(model, identity_of(model.path))
    except WakefulError as error:
        told = Told(False, f"no copy: {error.message}", {"result": "failed", "reason": error.message})
    except OSError as error:
        told = Told(False, f"no copy: {model.path}: {error.strerror}", {"result": "failed", "reason": f"{model.path}: {error.strerror}"})
    return told._replace(data={"model": model.key} | told.data)


class _Cleaning:
    def __init__(self, cache: PreparedCache) -> None:
        self._cache = cache

    async def treat(self, model: ModelSettings, identity: str) -> Told:
        copy = self._cache.find(identity, model.backend, library_of(model.backend))
        if copy is None:
            return Told(True, "has no copy", {"result": "none"})
        nbytes = _size(copy)
        self._cache.forget(identity)
        return Told(True, f"copy removed, {show_bytes(nbytes)}", {"result": "removed", "bytes": nbytes})


class _Making:
    def __init__(self, processes: Processes, cache: PreparedCache, looks: Looks, *, verify: bool) -> None:
        self._processes = processes
        self._cache = cache
        self._looks = looks
        self._verify = verify

    async def treat(self, model: ModelSettings, identity: str) -> Told:
        """Raises why there is no copy."""
        library = library_of(model.backend)
        copy = self._cache.find(identity, model.backend, library) or self._cache.adopt(model.path, identity, model.backend, library)
        if self._verify and copy is None:
            raise Unavailable("there is none yet")
        made = copy is None
        if copy is None:
            copy = await self._make(model, identity)
        compared = await compare(self._processes, model, copy)
        result = "made" if made else "compared" if self._verify else "kept"
        data = {
            "result": result, "bytes": _size(copy), "equal": compared.equal, "difference": compared.difference, "inputs": compared.inputs,
            "remark": compared.remark or None,
        }
        if not compared.equal:
            self._cache.forget(identity)
            text = f"outputs differ{_most(compared)}: {compared.remark}; the copy is removed, and the model is loaded as it is"
            return Told(False, text, data | {"result": "removed"})
        shipped, prepared = await self._best(model, None), await self._best(model, copy)
        data |= {
            "load_seconds": {"shipped": shipped.seconds, "prepared": prepared.seconds},
            "private_bytes": {"shipped": shipped.private_bytes, "prepared": prepared.private_bytes},
        }
        return Told(True, line(shipped, prepared, compared, _size(copy), self._looks) + ("" if made else ", was there"), data)

    async def _make(self, model: ModelSettings, identity: str) -> Path:
        directory = self._cache.begin()
        if directory is None:
            raise Unavailable(f"{self._cache.directory} cannot be written")
        _, copy = await write_copy(self._processes, self._cache, directory, model, identity, nice=0)
        if copy is None:
            raise Unavailable("its file changes, or keeps weights where their change would not be noticed")
        return copy

    async def _best(self, model: ModelSettings, copy: Path | None) -> Opened:
        opened = [await open_once(self._processes, model, copy) for _ in range(LOADS)]
        if copy is not None and not all(one.prepared for one in opened):
            raise Unavailable("it does not load")
        return min(opened)


def line(shipped: Opened, prepared: Opened, compared: Compared, nbytes: int, looks: Looks) -> str:
    """What was won, and that it is the same model."""
    arrow = looks.symbol("to")
    times = _pair(show_seconds(shipped.seconds), show_seconds(prepared.seconds), arrow)
    sizes = _pair(show_bytes(shipped.private_bytes), show_bytes(prepared.private_bytes), arrow)
    same = f"outputs equal{_most(compared)}" if compared.inputs else f"outputs not compared ({compared.remark})"
    return f"load {times}, private {sizes}, {same}, {show_bytes(nbytes)}"


def _most(compared: Compared) -> str:
    return "" if compared.difference is None else f" (max {compared.difference:.2g})"


def _pair(before: str, after: str, arrow: str) -> str:
    """The unit once where it is the same."""
    unit = after.rpartition(" ")[2]
    return f"{before.removesuffix(f' {unit}')} {arrow} {after}"


def _size(copy: Path) -> int:
    return sum(file.stat().st_size for file in copy.iterdir())
