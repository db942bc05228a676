"""Where models come from: the configuration, and a directory, which both may change while the daemon runs."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from wakeful.config.effective import differences, model_keys
from wakeful.config.kinds import KINDS
from wakeful.config.models import look_again, scan
from wakeful.config.problems import Problem
from wakeful.config.settings import ModelSettings, Settings, rank
from wakeful.config.text import with_tokenizers
from wakeful.errors import Conflict, WakefulError
from wakeful.models.model import Model
from wakeful.models.registry import Registry
from wakeful.telemetry.events import Events

Change = Callable[[ModelSettings], ModelSettings]
Why = Callable[[ModelSettings], str]
"""Says why a model is there, or is not there any more."""


class Repository:
    """Keeps the registry in step with the configuration and the models directory. One change at a time."""

    def __init__(self, settings: Settings, registry: Registry, make: Callable[[ModelSettings], Model], events: Events) -> None:
        self._settings = settings
        self.registry = registry
        self._make = make
        self._events = events
        self._changing = asyncio.Lock()
        self._told: dict[str, str] = {}
        """By name, what was said last of its configuration for another server."""
        self._delivered: dict[str, list[ModelSettings]] = {}
        """Models that a cluster has sent, by name, with their versions: neither a file nor a directory names them."""
        self.unregistered: set[Model] = set()
        """Models that nobody can ask for: removed ones that have not finished their work, and versions that are to be ready before they come."""

    @property
    def directory(self) -> Path | None:
        """The models directory, if there is one."""
        return self._settings.models_dir

    @property
    def defaults(self) -> ModelSettings:
        """What a model has of which nothing else is said."""
        return self._settings.defaults

    def register_all(self) -> None:
        """What the configuration names, and what was found in the directory at start."""
        for settings in self._settings.models:
            self.registry.add(self._make(settings))
        self._tell_accounts(self._settings.models)

    async def apply(self, settings: Settings) -> None:
        """Go over to another configuration. A model whose settings are the same is not touched; what waits for a changed one goes on under the new
        settings, and what waits for a removed one is refused."""
        async with self._changing:
            self._settings = settings
            own = [one for one in [*settings.models, *self._kept(settings.unread)] if one.id not in self._delivered]
            wanted = with_tokenizers([*own, *self._all_delivered()])
            names = {settings.id for settings in wanted} | {model.id for model in self.registry}
            await self._go_over(names, wanted, lambda _: "added", lambda _: "the configuration does not name it any more")

    async def refresh(self, name: str | None = None, change: Change | None = None) -> None:
        """Register new files and versions, forget vanished ones that were found by looking, and put changed ones to sleep so that they are loaded
        anew; all, or those of one name. `change` makes the settings by which they are served until the next such look. Raises what it raises."""
        async with self._changing:
            await self._refresh(name, change)

    async def change(self, name: str, write: Callable[[], Awaitable[None]]) -> None:
        """Write the files of one model and look at it again, as one change. Raises what `write` raises."""
        async with self._changing:
            await write()
            await self._refresh(name)

    async def _refresh(self, name: str | None, change: Change | None = None) -> None:
        found = None if name is not None and self._other_spelling(name) else self._look(name)
        if found is None:
            return
        found = [settings for settings in found if settings.id not in self._delivered]
        found += self._all_delivered() if name is None else self._delivered.get(name, [])
        wanted = with_tokenizers(found if change is None else [change(settings) for settings in found])
        names = {settings.id for settings in wanted} | ({model.id for model in self.registry} if name is None else {name})
        same = [model for one in names for model in self.registry.versions(one)]
        await self._go_over(names, wanted, lambda settings: f"found {show(settings)}", lambda settings: f"{show(settings)} is gone")
        for model in same:
            if model in self.registry.versions(model.id) and model.file.changed():
                self._events.emit("config", model.key, f"{show(model.settings)} has changed; the next request loads it anew")
                await model.reload()

    # ── from a cluster ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def deliver(self, name: str, wanted: list[ModelSettings], served: Callable[[], None], *, proven: bool = False) -> None:
        """Serve a model that a cluster has sent, in these versions, in the place of those that it had sent before. They are loaded before anybody
        can ask for them, unless they are `proven`: that they load is known. Raises why one does not load, or cannot be here; all stays as it is then.
        `served` is called as soon as callers reach them; those whose place they take still have work then. Others may be delivered meanwhile, the
        same one may not."""
        self._check_free(name)
        await self._change_helpers(wanted)
        before = self.registry.versions(name)
        arriving = [self._make(settings) for settings in wanted]
        self.unregistered.update(arriving)
        try:
            for model in arriving if before else ():
                model.inherit(before[-1])
            if not proven:
                await asyncio.gather(*(model.load() for model in arriving))
            async with self._changing:
                self._delivered[name] = wanted
                self._exchange_delivered(before, arriving)
        except BaseException:
            await asyncio.gather(*(model.close("config") for model in arriving))
            raise
        finally:
            self.unregistered.difference_update(arriving)
        served()
        await self._change_helpers(wanted)  # what was looked at meanwhile did not know of this one
        async with asyncio.TaskGroup() as leaving:
            for model in before:
                leaving.create_task(self._leave(model, model.retire(arriving[-1])))

    async def withdraw(self, name: str) -> None:
        """Forget a model that a cluster has sent, once it has finished its work."""
        async with self._changing:
            settings = self._delivered.pop(name, [])
            leaving = self.registry.versions(name) if settings else []
            for model in leaving:
                self.registry.remove(model)
                self._events.emit("config", model.key, "withdrawn: the cluster does not want it here any more")
        async with asyncio.TaskGroup() as group:
            for model in leaving:
                group.create_task(self._leave(model, model.close("config")))
        await self._change_helpers(settings, gone=True)

    def _all_delivered(self) -> list[ModelSettings]:
        return [settings for versions in self._delivered.values() for settings in versions]

    def _check_free(self, name: str) -> None:
        """A server's own models and pipelines go before those of the cluster."""
        own = self.registry.find(name) if name not in self._delivered else None
        if own is not None or self.is_pipeline(name) or self._other_spelling(name):
            place = str(own.settings.place) if own is not None else "a pipeline, or a model that is spelt otherwise"
            raise Conflict(f"this server's own configuration has the name {name} already: {place}; call the model otherwise")

    def _exchange_delivered(self, before: list[Model], arriving: list[Model]) -> None:
        for model in before:
            self.registry.remove(model)
        for model in arriving:
            self.registry.add(model)
            self._events.emit("config", model.key, f"delivered: {show(model.settings)}")
            model.spare = True
            model.start_standing()

    async def _change_helpers(self, changed: list[ModelSettings], *, gone: bool = False) -> None:
        """Tokenizers come before the models that have `changed`, and go after them."""
        if all(settings.text is None for settings in changed):
            return
        async with self._changing:
            there = [model.settings for model in [*self.registry, *self.unregistered]] + ([] if gone else changed)
            helpers = [one for one in with_tokenizers(there) if KINDS[one.backend].serves_models]
            names = {one.id for one in [*there, *helpers] if KINDS[one.backend].serves_models}
            await self._go_over(names, helpers, lambda _: "added", lambda _: "no model uses it any more")

    # ── what is there ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, name: str | None) -> list[ModelSettings] | None:
        """The models that there are now, or those of one name; None if the directory cannot be read."""
        report: list[Problem] = []
        wanted = self._configured(name, report)
        directory = self._settings.models_dir
        if directory is not None:
            served = {model.settings.place for model in self.registry}
            try:
                found, unread = scan(directory, self._settings, served, report, name)
            except OSError as error:
                text = f"{directory} cannot be read, so nothing has changed: {error.strerror}"
                self._events.emit("config", "", text, code="models-dir")
                return None
            wanted += found + [settings for settings in self._kept(unread) if name in (None, settings.id)]
        for problem in report:
            self._events.emit("config", "", problem.message, code=problem.code)
        return wanted

    def _configured(self, name: str | None, report: list[Problem]) -> list[ModelSettings]:
        """What the configuration names, with the versions that its directories have now."""
        wanted: list[ModelSettings] = []
        entries = {settings.id: settings for settings in self._settings.models if not settings.scanned and name in (None, settings.id)}
        for settings in entries.values():
            wanted += look_again(settings, report) or [model.settings for model in self.registry.versions(settings.id)]
        return wanted

    def _kept(self, unread: Collection[Path]) -> list[ModelSettings]:
        """What was found earlier, and could not be looked at now."""
        return [model.settings for model in self.registry if model.settings.scanned and model.settings.place in unread]

    def is_pipeline(self, name: str) -> bool:
        """Is the name, in whatever case, no model's to take?"""
        return any(name.lower() == pipeline.id.lower() for pipeline in self._settings.pipelines)

    def _other_spelling(self, name: str) -> bool:
        """Does a model have this name but for upper and lower case? A look at one name does not find that."""
        return name not in self.registry and any(name.lower() == model.id.lower() for model in self.registry)

    def _tell_accounts(self, models: Iterable[ModelSettings]) -> None:
        """What has come of other servers' configurations, wherever that is new."""
        for settings in models:
            account = "" if settings.foreign is None else settings.foreign.account
            if self._told.get(settings.id, "") != account:
                self._told[settings.id] = account
                self._events.emit("config", settings.id, account or "it has no configuration of another server any more", code="foreign")

    # ── from one state to the next ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _go_over(self, names: Iterable[str], wanted: Iterable[ModelSettings], come: Why, gone: Why) -> None:
        by_name: dict[str, list[ModelSettings]] = {name: [] for name in names}
        for settings in wanted:
            by_name[settings.id].append(settings)
        self._tell_accounts(settings for versions in by_name.values() for settings in versions)
        for wave in self._waves(by_name):
            async with asyncio.TaskGroup() as changes:  # a model that finishes its work holds no other one up
                for name in wave:
                    changes.create_task(self._exchange(name, by_name[name], come, gone))

    def _waves(self, wanted: Mapping[str, list[ModelSettings]]) -> Iterable[list[str]]:
        """What helps models comes before them, and goes after them."""
        def helps(name: str) -> bool:
            settings = [*wanted[name], *(model.settings for model in self.registry.versions(name))]
            return any(KINDS[one.backend].serves_models for one in settings)

        helpers = [name for name in wanted if helps(name)]
        yield [name for name in helpers if wanted[name]]
        yield [name for name in wanted if name not in helpers]
        yield [name for name in helpers if not wanted[name]]

    async def _exchange(self, name: str, wanted: list[ModelSettings], come: Why, gone: Why) -> None:
        """Serve these versions of a model, and no others. The new one is ready before the old one goes."""
        served = {model.key: model for model in self.registry.versions(name)}
        keys = {settings.key for settings in wanted}
        new = [settings for settings in wanted if settings.key not in served]
        old = [model for key, model in served.items() if key not in keys]
        async with asyncio.TaskGroup() as changes:
            for settings in wanted:
                model = served.get(settings.key)
                if model is not None and model.settings != settings:
                    changed = differences(model_keys(model.settings), model_keys(settings)) or ["path"]
                    self._events.emit("config", model.key, f"its settings have changed: {', '.join(changed)}")
                    changes.create_task(model.replace(partial(self._instead, settings)))
            if new and served:
                changes.create_task(self._succeed(new, old, come, gone))
                return
            for settings in new:
                self._events.emit("config", settings.key, come(settings))
                self._instead(settings).start_standing()
            for model in old:
                self._events.emit("config", model.key, f"removed: {gone(model.settings)}")
                changes.create_task(self._remove(model))

    async def _succeed(self, new: list[ModelSettings], old: list[Model], come: Why, gone: Why) -> None:
        """New versions come, and old ones may go for them. If the newest is new and is to serve those who are served now, it is loaded first; if it
        does not load, all stays as it is."""
        before = self.registry.get(new[0].id)
        arriving = [self._make(settings) for settings in new]
        for model in arriving:
            model.inherit(before)
        heir = max(arriving, key=lambda model: rank(model.version))
        leads = before in old or rank(heir.version) > rank(before.version)
        if leads and before.group.replicas and not await self._load_ahead(heir, before, come):
            for model in arriving:
                await model.close("config")
            return
        for model in old:
            self.registry.remove(model)
        for model in arriving:
            self.registry.add(model)
            if not model.group.replicas:
                self._events.emit("config", model.key, come(model.settings))
            model.start_standing()
        async with asyncio.TaskGroup() as leaving:
            for model in old:
                self._events.emit("config", model.key, f"{heir.key} has taken its place")
                leaving.create_task(self._leave(model, model.retire(heir)))

    async def _load_ahead(self, heir: Model, before: Model, come: Why) -> bool:
        """Load a version that nobody can ask for yet."""
        self._events.emit("config", heir.key, f"{come(heir.settings)}; {before.key} goes on until it is ready")
        self.unregistered.add(heir)
        try:
            await heir.load()
        except WakefulError as error:
            text = f"it does not load, so {before.key} stays: {error.message}; a refresh tries it again"
            self._events.emit("config", heir.key, text, code=error.code)
            return False
        finally:
            self.unregistered.discard(heir)
        return True

    def _instead(self, settings: ModelSettings) -> Model:
        """A new model under its name, from now on."""
        model = self._make(settings)
        self.registry.add(model)
        return model

    async def _remove(self, model: Model) -> None:
        self.registry.remove(model)
        await self._leave(model, model.close("config"))

    async def _leave(self, model: Model, work: Awaitable[None]) -> None:
        self.unregistered.add(model)
        try:
            await work
        finally:
            self.unregistered.discard(model)


def show(settings: ModelSettings) -> str:
    """A model's file, as seen from the directory that it was found in."""
    return settings.path.name if settings.home is None else str(settings.path.relative_to(settings.home.parent))
