"""All pipelines by name, kept in step with the configuration."""

from collections.abc import Callable, Iterator, Sequence

from wakeful.config.effective import differences, pipeline_keys
from wakeful.config.settings import PipelineSettings
from wakeful.errors import NotFound, Unavailable
from wakeful.models.pipelines.pipeline import VERSION, Pipeline
from wakeful.telemetry.events import Events


class Pipelines:
    def __init__(self, make: Callable[[PipelineSettings], Pipeline], events: Events) -> None:
        self.by_name: dict[str, Pipeline] = {}
        """Looked at for every request, so it is asked without a call."""
        self._make = make
        self._events = events

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def __iter__(self) -> Iterator[Pipeline]:
        return iter(list(self.by_name.values()))

    def get(self, name: str, version: str | None = None) -> Pipeline:
        """The pipeline of this name, which is one. Raises NotFound for a version."""
        if version is not None and version != VERSION:
            raise NotFound(f"pipeline {name} has no version {version!r}, only {VERSION}")
        return self.by_name[name]

    def register_all(self, wanted: Sequence[PipelineSettings]) -> None:
        for settings in wanted:
            self.by_name[settings.id] = self._make(settings)

    def check(self) -> None:
        """Tell what is wrong with them, as far as it is known."""
        for pipeline in self:
            pipeline.check()

    def apply(self, wanted: Sequence[PipelineSettings]) -> None:
        """Go over to another configuration. What is under way ends as it began; what has not begun goes on under the new settings."""
        old, new = self.by_name, {settings.id: settings for settings in wanted}
        self.by_name = {}
        for name, settings in new.items():
            before = old.get(name)
            if before is not None and before.settings == settings:
                self.by_name[name] = before
                continue
            after = self.by_name[name] = self._make(settings)
            if before is None:
                self._events.emit("config", name, "added: a pipeline")
                continue
            changed = differences(pipeline_keys(before.settings), pipeline_keys(settings))
            self._events.emit("config", name, f"its settings have changed: {', '.join(changed)}")
            after.take_over(before.release())
        for name, pipeline in old.items():
            if name not in new:
                self._events.emit("config", name, "removed: the configuration does not name it any more")
                pipeline.refuse_held(Unavailable(f"pipeline {name} was removed", unstarted=True))

    def shut_down(self) -> None:
        for pipeline in self:
            pipeline.refuse_held(Unavailable("the server is stopping", unstarted=True))
