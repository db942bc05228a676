"""Where models come from: the configuration, and a directory that may change while the daemon runs."""

from collections.abc import Callable
from pathlib import Path

from wakeful.config.models import scan
from wakeful.config.problems import Problem
from wakeful.config.settings import ModelSettings, Settings
from wakeful.models.model import Model
from wakeful.models.registry import Registry
from wakeful.telemetry.events import Events


class Repository:
    """Keeps the registry in step with the models directory."""

    def __init__(self, settings: Settings, registry: Registry, make: Callable[[ModelSettings], Model], events: Events) -> None:
        self._settings = settings
        self._registry = registry
        self._make = make
        self._events = events

    def register_all(self) -> None:
        """What the configuration names, and what was found in the directory at start."""
        for settings in self._settings.models:
            self._registry.add(self._make(settings))

    async def refresh(self) -> None:
        """Register new files, forget vanished ones that were found by looking, and put changed ones to sleep so that they are loaded anew."""
        directory = self._settings.models_dir
        passed_over: list[Problem] = []
        served = {model.settings.path for model in self._registry}
        found = scan(directory, self._settings, served, passed_over) if directory is not None else []
        for problem in passed_over:
            self._events.emit("config", "", problem.message, code=problem.code)
        paths = {settings.path for settings in found}
        for model in self._registry:
            if model.settings.scanned and model.settings.path not in paths:
                self._registry.remove(model.id)
                self._events.emit("config", model.id, f"removed: {_show(model.settings.path)} is gone")
                await model.close("config")
            elif model.file.changed():
                self._events.emit("config", model.id, f"{_show(model.settings.path)} has changed; the next request loads it anew")
                await model.reload()
        for settings in found:
            if settings.id not in self._registry:
                self._registry.add(self._make(settings))
                self._events.emit("config", settings.id, f"found {_show(settings.path)}")


def _show(path: Path) -> str:
    return path.name
