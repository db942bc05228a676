"""Where models come from: the configuration, and a directory, which both may change while the daemon runs."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from wakeful.config.effective import differences, model_keys
from wakeful.config.models import scan
from wakeful.config.problems import Problem
from wakeful.config.settings import ModelSettings, Settings
from wakeful.models.model import Model
from wakeful.models.registry import Registry
from wakeful.telemetry.events import Events


class Repository:
    """Keeps the registry in step with the configuration and the models directory. One change at a time."""

    def __init__(self, settings: Settings, registry: Registry, make: Callable[[ModelSettings], Model], events: Events) -> None:
        self._settings = settings
        self._registry = registry
        self._make = make
        self._events = events
        self._changing = asyncio.Lock()
        self.leaving: set[Model] = set()
        """Removed models that have not finished their work."""

    def register_all(self) -> None:
        """What the configuration names, and what was found in the directory at start."""
        for settings in self._settings.models:
            self._registry.add(self._make(settings))

    async def apply(self, settings: Settings) -> None:
        """Go over to another configuration. A model whose settings are the same is not touched; what waits for a changed one goes on under the new
        settings, and what waits for a removed one is refused."""
        async with self._changing:
            self._settings = settings
            wanted = {model.id: model for model in settings.models}
            async with asyncio.TaskGroup() as changes:  # a model that finishes its work holds no other one up
                for model in self._registry:
                    if model.id not in wanted:
                        self._events.emit("config", model.id, "removed: the configuration does not name it any more")
                        changes.create_task(self._remove(model))
                    elif model.settings != wanted[model.id]:
                        changed = differences(model_keys(model.settings), model_keys(wanted[model.id]))
                        self._events.emit("config", model.id, f"its settings have changed: {', '.join(changed)}")
                        changes.create_task(model.replace(partial(self._instead, wanted[model.id])))
                for found in settings.models:
                    if found.id not in self._registry:
                        self._events.emit("config", found.id, "added")
                        self._instead(found).start_standing()

    def _instead(self, settings: ModelSettings) -> Model:
        """A new model under its name, from now on."""
        model = self._make(settings)
        self._registry.add(model)
        return model

    async def _remove(self, model: Model) -> None:
        self._registry.remove(model.id)
        self.leaving.add(model)
        try:
            await model.close("config")
        finally:
            self.leaving.discard(model)

    async def refresh(self) -> None:
        """Register new files, forget vanished ones that were found by looking, and put changed ones to sleep so that they are loaded anew."""
        async with self._changing:
            await self._refresh()

    async def _refresh(self) -> None:
        directory = self._settings.models_dir
        passed_over: list[Problem] = []
        served = {model.settings.path for model in self._registry}
        try:
            found = scan(directory, self._settings, served, passed_over) if directory is not None else []
        except OSError as error:
            self._events.emit("config", "", f"{directory} cannot be read, so nothing has changed: {error.strerror}", code="models-dir")
            return
        for problem in passed_over:
            self._events.emit("config", "", problem.message, code=problem.code)
        paths = {settings.path for settings in found}
        for model in self._registry:
            if model.settings.scanned and model.settings.path not in paths:
                self._events.emit("config", model.id, f"removed: {_show(model.settings.path)} is gone")
                await self._remove(model)
            elif model.file.changed():
                self._events.emit("config", model.id, f"{_show(model.settings.path)} has changed; the next request loads it anew")
                await model.reload()
        for settings in found:
            if settings.id not in self._registry:
                self._instead(settings)
                self._events.emit("config", settings.id, f"found {_show(settings.path)}")


def _show(path: Path) -> str:
    return path.name
