"""All models by name and version."""

from collections.abc import Iterator

from wakeful.config.settings import rank
from wakeful.errors import NotFound, Unavailable
from wakeful.models.model import Model


class Registry:
    """A name stands for its newest version."""

    def __init__(self) -> None:
        self._newest: dict[str, Model] = {}
        self._versions: dict[str, dict[str, Model]] = {}
        """Name to version to model, oldest first."""
        self.elsewhere: dict[str, str] = {}
        """Names that other servers of a cluster have, or that are on their way here, with words for whoever asks for them here."""

    def get(self, name: str, version: str | None = None) -> Model:
        """The model of this name. Raises NotFound, in the same words whatever the name looks like, and Unavailable for what is elsewhere."""
        model = self._newest.get(name)
        if model is None:
            if (why := self.elsewhere.get(name)) is not None:
                raise Unavailable(why, retry_after=1.0, unstarted=True)
            raise NotFound(f"no model is called {name!r}")
        if version is not None:
            versions = self._versions[name]
            model = versions.get(version)
            if model is None:
                raise NotFound(f"model {name} has no version {version!r}, only {', '.join(versions)}")
        return model

    def find(self, name: str) -> Model | None:
        return self._newest.get(name)

    def by_key(self, key: str) -> Model | None:
        """The version of a model whose key this is."""
        return next((model for model in self._versions.get(key.partition(":")[0], {}).values() if model.key == key), None)

    def versions(self, name: str) -> list[Model]:
        """All versions of a model that are served, oldest first; empty if no model is called so."""
        return list(self._versions.get(name, {}).values())

    def newest(self) -> list[Model]:
        """The newest version of each model."""
        return list(self._newest.values())

    def add(self, model: Model) -> None:
        """From now on it is the one of its name and version."""
        versions = self._versions.setdefault(model.id, {})
        versions[model.version] = model
        model.stats.read_gauges = model.gauges
        self._order(model.id)

    def remove(self, model: Model) -> None:
        versions = self._versions[model.id]
        del versions[model.version]
        self._order(model.id)

    def _order(self, name: str) -> None:
        versions = dict(sorted(self._versions[name].items(), key=lambda item: rank(item[0])))
        if versions:
            self._versions[name] = versions
            self._newest[name] = next(reversed(versions.values()))
        else:
            del self._versions[name], self._newest[name]

    def __iter__(self) -> Iterator[Model]:
        """Every version of every model."""
        return iter([model for versions in self._versions.values() for model in versions.values()])

    def __len__(self) -> int:
        """Names."""
        return len(self._newest)

    def __contains__(self, name: str) -> bool:
        return name in self._newest
