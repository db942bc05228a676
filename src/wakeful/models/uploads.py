"""Models that callers bring. A file is written beside the models, opened in a process of its own, and only then renamed into place: neither a crash,
nor a full disk, nor a file that is no model leaves anything behind.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wakeful.config.beside import keys_of_model, settings_file, text_of, with_keys
from wakeful.config.document import Document, read_document
from wakeful.config.kinds import KINDS, kind_of
from wakeful.config.problems import Place, Problem
from wakeful.config.values import check_id
from wakeful.errors import Conflict, InvalidInput
from wakeful.models.drafts import Draft, sweep, write_whole
from wakeful.models.errands import Errands
from wakeful.models.model import Model
from wakeful.models.registry import Registry
from wakeful.models.repository import Repository, show
from wakeful.telemetry.events import Events
from wakeful.telemetry.units import show_bytes

LOAD_SECONDS = 120.0
"""Longest look at a file that was brought."""
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class Order:
    """What the parts of an upload ask for."""

    id: str
    overwrite: bool
    keys: Mapping[str, Any]
    """Of [[models]], validated."""


class Uploads:
    def __init__(self, repository: Repository, registry: Registry, errands: Errands, events: Events) -> None:
        self._repository = repository
        self._registry = registry
        self._errands = errands
        self._events = events

    def check(self) -> Path:
        """Where models go. Raises Conflict if there is no such place."""
        directory = self._repository.directory
        if directory is None:
            raise Conflict("this server has no models directory to put a model into: start it with --models-dir DIR")
        return directory

    def sweep(self) -> None:
        """What a crash has left is in nobody's way, but on the disk."""
        if self._repository.directory is not None:
            sweep(self._repository.directory)

    def draft(self, filename: str) -> Draft:
        """A place for a file that is on its way; blocks. Of its name only the end counts, and without `model_id` the stem.

        Raises InvalidInput for what is no model by its name.
        """
        name = filename.replace("\\", "/").rpartition("/")[2]
        found = kind_of(name)
        if found is None:
            suffixes = ", ".join(suffix for kind in KINDS.values() for suffix in kind.suffixes)
            raise InvalidInput.field("part file: its name", f"one that ends in {suffixes}", repr(filename))
        return Draft(self.check(), name, name.removeprefix(found.stem), found.backend)

    async def place(self, draft: Draft, parts: Mapping[str, str]) -> Model:
        """Serve a file that has been received whole, with the settings that the other parts of its form give. The model is listed when this returns.

        Raises InvalidInput for wrong parts and for a file that is no model, Conflict where there is such a model already; nothing has changed then.
        """
        order = read_parts(draft, parts)
        self._check_together(self._target(draft, order), draft, order)
        await asyncio.to_thread(draft.sync)
        ready = await self._errands.examine(draft.path, draft.backend, LOAD_SECONDS, shown=draft.name)

        async def write() -> None:
            target = self._target(draft, order)  # another upload may have been quicker
            self._check_together(target, draft, order)
            await asyncio.to_thread(_put, draft, target, order.keys)

        await self._repository.change(order.id, write)
        model = self._registry.get(order.id)
        model.learn_from_file(ready)
        self._events.emit("config", model.id, f"uploaded: {draft.name}, {show_bytes(draft.size)}", bytes=draft.size, code="uploaded")
        model.start_standing()
        return model

    def _target(self, draft: Draft, order: Order) -> Path:
        """The file that is to be written, or replaced. Raises Conflict if that must not be."""
        target = self.check() / f"{order.id}{draft.suffix}"
        if self._repository.is_pipeline(order.id):
            raise Conflict(f"{order.id} is a pipeline, so no model can have this name")
        existing = [model for model in self._registry if model.id.lower() == order.id.lower()]
        if not existing and not target.exists():
            return target
        if not order.overwrite:
            raise Conflict(f"there is a model {order.id} already; overwrite=true replaces it")
        for model in existing:
            if model.settings.path != target:
                raise Conflict(f"model {model.id} is served from {show(model.settings)}, which {target.name} does not replace")
            if order.keys and not model.settings.scanned:
                raise Conflict(f"the settings of model {model.id} are those of [[models]]: leave {', '.join(order.keys)} out, or change them there")
        return target

    def _check_together(self, target: Path, draft: Draft, order: Order) -> None:
        """Raises InvalidInput where what is given does not go with what is kept, or with the defaults: a file of settings with a mistake would keep
        the server from its next start."""
        settings = replace(self._repository.defaults, id=order.id, path=target, backend=draft.backend)
        report: list[Problem] = []
        if order.keys and with_keys(settings, _together(target, order.keys), Document("the form"), report) is None:
            raise InvalidInput("; ".join(f"part {problem.key}: {problem.message}" for problem in report if problem.severity == "error"))


def read_parts(draft: Draft, parts: Mapping[str, str]) -> Order:
    """Raises InvalidInput that names the part."""
    texts = dict(parts)
    given, overwrite = texts.pop("model_id", ""), texts.pop("overwrite", "false")
    if overwrite.lower() not in _TRUTH:
        raise InvalidInput.field("part overwrite", "true or false", repr(overwrite))
    problems: list[Problem] = []
    keys = keys_of_model(texts, "the form", lambda path: Place(f"part {path[0]}"), problems, strict=False)
    if keys is None:
        raise InvalidInput("; ".join(f"part {problem.key}: {problem.message}{f' ({problem.hint})' if problem.hint else ''}" for problem in problems))
    return Order(_safe_id(given.strip() or draft.name.removesuffix(draft.suffix), draft), _TRUTH[overwrite.lower()], keys)


def _safe_id(name: str, draft: Draft) -> str:
    """An id from which a file name in the models directory can be made, that leads to the same id when it is found there."""
    try:
        check_id(name)
    except ValueError as error:
        raise InvalidInput(f"part model_id: {error}, got {name[:80]!r}") from None
    found = kind_of(name + draft.suffix)
    if "/" in name or name.startswith(".") or found is None or found.stem != name:
        raise InvalidInput.field("part model_id", 'a name without "/" that does not begin with "." or end like a file of a model', repr(name))
    return name


def _put(draft: Draft, target: Path, keys: Mapping[str, Any]) -> None:
    """The settings first: a new model is never seen without them. What an earlier file of settings says besides, stays."""
    if keys:
        write_whole(settings_file(target), text_of(_together(target, keys)))
    draft.put(target)


def _together(target: Path, keys: Mapping[str, Any]) -> dict[str, Any]:
    """These keys over those that lie beside the file."""
    beside = settings_file(target)
    before = read_document(beside) if beside.exists() else None
    kept = {} if before is None or isinstance(before, Problem) else before.values
    return {**kept, **keys}
