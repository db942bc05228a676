"""All models by name."""

from collections.abc import Iterator

from wakeful.errors import NotFound
from wakeful.models.model import Model

VERSION = "1"
"""Models have one version. Paths may name it."""


class Registry:
    def __init__(self) -> None:
        self._models: dict[str, Model] = {}

    def get(self, name: str, version: str | None = None) -> Model:
        """The model of this name. Raises NotFound, in the same words whatever the name looks like."""
        model = self._models.get(name)
        if model is None:
            raise NotFound(f"no model is called {name!r}")
        if version is not None and version != VERSION:
            raise NotFound(f"model {name} has no version {version!r}, only {VERSION}")
        return model

    def add(self, model: Model) -> None:
        self._models[model.id] = model

    def remove(self, name: str) -> None:
        del self._models[name]

    def __iter__(self) -> Iterator[Model]:
        return iter(list(self._models.values()))

    def __len__(self) -> int:
        return len(self._models)

    def __contains__(self, name: str) -> bool:
        return name in self._models
