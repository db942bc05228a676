"""Which step of a pipeline gives what to which, found by the names of tensors alone. Pure.

A step takes each input of its model from whoever makes a tensor of that name, another step or else the caller; maps only rename. So the order in
which steps are written does not matter. What a model declares may not be known yet: then only the names that maps give are looked at.
"""

from collections.abc import Collection, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

from wakeful.config.settings import PipelineSettings
from wakeful.config.validate import nearest


class Names(NamedTuple):
    """Of the tensors that a model declares."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Link(NamedTuple):
    """A tensor under the model's own name, and under the pipeline's."""

    own: str
    shared: str


class WiredStep(NamedTuple):
    takes: tuple[Link, ...]
    gives: tuple[Link, ...]
    """What another step takes, or the caller; the model may make more."""
    before: tuple[int, ...]
    """Steps that take something from this one."""
    waits: int
    """How many steps it takes something from."""


class Wiring(NamedTuple):
    steps: tuple[WiredStep, ...]
    inputs: tuple[str, ...]
    """What callers give."""
    outputs: tuple[str, ...]


class Fault(NamedTuple):
    step: int | None
    """None: of the pipeline as a whole."""
    key: str
    """Of the step's table, or of the pipeline's."""
    message: str
    hint: str | None = None


def label(pipeline: PipelineSettings, step: int) -> str:
    """How people are told of a step."""
    settings = pipeline.steps[step]
    version = "" if settings.version is None else f":{settings.version}"
    return f"step {settings.name or step + 1} (model {settings.model}{version})"


def faults_of(pipeline: PipelineSettings, declared: Sequence[Names | None]) -> list[Fault]:
    """All that is wrong, as far as it can be told: `declared` has an entry for each step, None where its model has not been opened yet."""
    takes, gives = _links(pipeline, declared)
    found = [
        *_unknown_names(pipeline, declared), *_made_twice(pipeline, gives), *_cycles(pipeline, takes, gives), *_already_inputs(pipeline, gives),
    ]
    if None not in declared and not found:
        found = [*_made_by_nobody(pipeline, takes, gives)] or [*_given_to_nobody(pipeline, takes, gives)]
    return found


def wire(pipeline: PipelineSettings, declared: Sequence[Names]) -> Wiring:
    """The plan of a pipeline without faults."""
    takes, gives = _links(pipeline, declared)
    maker = _makers(gives)
    outputs = pipeline.outputs if pipeline.outputs is not None else tuple(link.shared for link in gives[-1])
    wanted = {link.shared for links in takes for link in links}.union(outputs)
    sources = [{maker[link.shared] for link in links if link.shared in maker} for links in takes]
    steps = tuple(
        WiredStep(
            tuple(takes[step]),
            tuple(link for link in gives[step] if link.shared in wanted),
            tuple(other for other, needed in enumerate(sources) if step in needed),
            len(sources[step]),
        )
        for step in range(len(takes))
    )
    inputs = dict.fromkeys(link.shared for links in takes for link in links if link.shared not in maker)
    return Wiring(steps, pipeline.inputs if pipeline.inputs is not None else tuple(inputs), outputs)


_Links = list[list[Link]]


def _links(pipeline: PipelineSettings, declared: Sequence[Names | None]) -> tuple[_Links, _Links]:
    """What each step takes and gives."""
    takes, gives = [], []
    for step, names in zip(pipeline.steps, declared, strict=True):
        takes.append([Link(own, step.inputs.get(own, own)) for own in (names.inputs if names else step.inputs)])
        gives.append([Link(own, step.outputs.get(own, own)) for own in (names.outputs if names else step.outputs)])
    return takes, gives


def _makers(gives: _Links) -> dict[str, int]:
    return {link.shared: step for step, links in enumerate(gives) for link in links}


def _unknown_names(pipeline: PipelineSettings, declared: Sequence[Names | None]) -> Iterator[Fault]:
    for index, (step, names) in enumerate(zip(pipeline.steps, declared, strict=True)):
        if names is None:
            continue
        for key, written, known in (("inputs", step.inputs, names.inputs), ("outputs", step.outputs, names.outputs)):
            for own in written:
                if own not in known:
                    near = nearest(own, known)
                    hint = f"did you mean `{near}`?" if near else f"it has {', '.join(known)}; on the left stands the model's own name"
                    yield Fault(index, key, f"its model has no {key[:-1]} `{own}`", hint)


def _made_twice(pipeline: PipelineSettings, gives: _Links) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for index, links in enumerate(gives):
        for link in links:
            if link.shared in first:
                whose = "twice" if first[link.shared] == index else f"as {label(pipeline, first[link.shared])} does"
                yield Fault(index, "outputs", f"it makes `{link.shared}`, {whose}", f'rename one: outputs = {{ {link.own} = "..." }}')
            else:
                first[link.shared] = index


def _cycles(pipeline: PipelineSettings, takes: _Links, gives: _Links) -> Iterator[Fault]:
    maker = _makers(gives)
    sources = [{maker[link.shared]: link for link in links if link.shared in maker} for links in takes]
    try:
        TopologicalSorter(dict(enumerate(sources))).prepare()
    except CycleError as error:
        ring = list(pairwise(error.args[1]))
        giver, taker = ring[0]
        link = sources[taker][giver]
        if giver == taker:
            yield Fault(taker, "inputs", f"it takes `{link.shared}` and makes `{link.shared}`", f'rename one: inputs = {{ {link.own} = "..." }}')
        else:
            told = "; ".join(f"{label(pipeline, one)} gives `{sources[other][one].shared}` to {label(pipeline, other)}" for one, other in ring)
            yield Fault(taker, "inputs", f"steps wait for each other: {told}", "what a step makes must not lead back to what it takes")


def _already_inputs(pipeline: PipelineSettings, gives: _Links) -> Iterator[Fault]:
    for index, links in enumerate(gives):
        for link in links:
            if link.shared in (pipeline.inputs or ()):
                yield Fault(index, "outputs", f"it makes `{link.shared}`, which is an input of the pipeline", f'outputs = {{ {link.own} = "..." }}')


def _made_by_nobody(pipeline: PipelineSettings, takes: _Links, gives: _Links) -> Iterator[Fault]:
    """Names in `outputs`, and where `inputs` tells what callers give, names that steps take."""
    made = _makers(gives)
    for name in pipeline.outputs or ():
        if name not in made:
            yield Fault(None, "outputs", f"no step makes `{name}`", _meant(name, made))
    if pipeline.inputs is None:
        return
    for index, links in enumerate(takes):
        for link in links:
            if link.shared not in made and link.shared not in pipeline.inputs:
                hint = _meant(link.shared, [*made, *pipeline.inputs])
                yield Fault(index, "inputs", f"it takes `{link.shared}`, which no step makes and which is no input of the pipeline", hint)
    taken = {link.shared for links in takes for link in links}
    for name in pipeline.inputs:
        if name not in taken:
            yield Fault(None, "inputs", f"no step takes `{name}`", _meant(name, taken))


def _given_to_nobody(pipeline: PipelineSettings, takes: _Links, gives: _Links) -> Iterator[Fault]:
    """A step that is of no use has most often a name that was meant to be another's."""
    made = _makers(gives)
    used = {link.shared for links in takes for link in links}.union(pipeline.outputs or ())
    given = dict.fromkeys(f"`{link.shared}`" for links in takes for link in links if link.shared not in made)
    for index, links in enumerate(gives if pipeline.outputs is not None else gives[:-1]):
        if not any(link.shared in used for link in links):
            names = ", ".join(f"`{link.shared}`" for link in links)
            hint = f'rename it: outputs = {{ {links[0].own} = "..." }}; callers have to give {", ".join(given)}' if links else "take the step out"
            yield Fault(index, "outputs", f"nobody takes what it makes: {names or 'nothing'}", hint)


def _meant(name: str, known: Collection[str]) -> str | None:
    near = nearest(name, known)
    return f"did you mean `{near}`?" if near else f"there are {', '.join(f'`{other}`' for other in sorted(known))}" if known else None
