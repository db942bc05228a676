"""How a pipeline is run, once the signatures of its models are known. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from wakeful.config.settings import PipelineSettings
from wakeful.config.wiring import Fault, Link, Names, Wiring, faults_of, label, wire
from wakeful.errors import NotFound, Unavailable, WakefulError
from wakeful.models.signature import Validator, show_shape
from wakeful.runtime.messages import Signature, TensorSpec

PLATFORM = "ensemble"
UNDECLARED, DECLARE = "its model declares no tensors, which find each other by name", "a Python model does that with `signature`"


class PlannedStep(NamedTuple):
    label: str
    """For errors."""
    model: str
    version: str | None
    takes: tuple[Link, ...]
    gives: tuple[Link, ...]
    before: tuple[int, ...]
    waits: int


class Plan(NamedTuple):
    steps: tuple[PlannedStep, ...]
    first: tuple[int, ...]
    """Steps that wait for none."""
    learnt: tuple[Signature, ...]
    """Of each step's model: what the plan follows from."""
    signature: Signature
    validate: Validator


def make_plan(pipeline: PipelineSettings, signatures: Sequence[Signature]) -> Plan:
    """The plan. Raises Unavailable that tells what does not fit, and in which step: only whoever configured it can mend that."""
    declared = [_names(signature) for signature in signatures]
    faults = [Fault(index, "model", UNDECLARED, DECLARE) for index, signature in enumerate(signatures) if signature.undeclared]
    faults = faults or faults_of(pipeline, declared)
    if faults:
        raise _refusal(pipeline, faults)
    wiring = wire(pipeline, declared)
    takers, makers = _ends(wiring, signatures)
    faults = list(_misfits(pipeline, takers, makers))
    if faults:
        raise _refusal(pipeline, faults)
    inputs = [_input(name, [spec for _, spec in takers.get(name, [])]) for name in wiring.inputs]
    outputs = [_renamed(makers[name][1], name) for name in wiring.outputs]
    signature = Signature(tuple(inputs), tuple(outputs), PLATFORM)
    steps = tuple(
        PlannedStep(label(pipeline, index), settings.model, None if settings.version is None else str(settings.version), *wired)
        for index, (settings, wired) in enumerate(zip(pipeline.steps, wiring.steps, strict=True))
    )
    first = tuple(index for index, step in enumerate(steps) if not step.waits)
    return Plan(steps, first, tuple(signatures), signature, Validator(signature, mergeable=False))


def of_step(step: str, error: WakefulError, *, unstarted: bool = True) -> WakefulError:
    """An error of a step's model, as the pipeline tells it. A model that is not there is no mistake of the caller's.

    `unstarted`: no other step has begun.
    """
    kind = Unavailable if isinstance(error, NotFound) else type(error)
    return kind(f"{step}: {error.message}", retry_after=error.retry_after, unstarted=error.unstarted and unstarted)


def _names(signature: Signature) -> Names:
    return Names(tuple(spec.name for spec in signature.inputs), tuple(spec.name for spec in signature.outputs))


def _refusal(pipeline: PipelineSettings, faults: Sequence[Fault]) -> Unavailable:
    told = [
        (f"{label(pipeline, fault.step)}: " if fault.step is not None else "") + fault.message + (f" ({fault.hint})" if fault.hint else "")
        for fault in faults
    ]
    return Unavailable(f"pipeline {pipeline.id} cannot be run: {'; '.join(told)}", unstarted=True)


_End = tuple[int, TensorSpec]
"""A step, and what its model declares."""


def _ends(wiring: Wiring, signatures: Sequence[Signature]) -> tuple[dict[str, list[_End]], dict[str, _End]]:
    """Of each tensor, by the pipeline's name: who takes it, and who makes it."""
    takers: dict[str, list[_End]] = {}
    makers: dict[str, _End] = {}
    for index, (step, signature) in enumerate(zip(wiring.steps, signatures, strict=True)):
        inputs, outputs = ({spec.name: spec for spec in specs} for specs in (signature.inputs, signature.outputs))
        for own, shared in step.takes:
            takers.setdefault(shared, []).append((index, inputs[own]))
        for own, shared in step.gives:
            makers[shared] = index, outputs[own]
    return takers, makers


def _misfits(pipeline: PipelineSettings, takers: dict[str, list[_End]], makers: dict[str, _End]) -> Iterator[Fault]:
    """Tensors of which two models have different ideas."""
    for name, ends in takers.items():
        source = makers.get(name)
        at, given = ends[0] if source is None else source
        verb = "takes it" if source is None else "gives"
        for step, spec in ends:
            if spec.datatype != given.datatype or not _fit(spec.shape, given.shape):
                wanted, got = (f"{end.datatype}{show_shape(end.shape)}" for end in (spec, given))
                yield Fault(step, "inputs", f"it takes `{name}` as {wanted}, and {label(pipeline, at)} {verb} {'as ' if source is None else ''}{got}")


def _fit(one: tuple[int | str | None, ...], other: tuple[int | str | None, ...]) -> bool:
    """Can a tensor be of both shapes? An empty one is any."""
    if not one or not other:
        return True
    sizes = zip(one, other, strict=False)
    return len(one) == len(other) and all(a == b or not isinstance(a, int) or not isinstance(b, int) for a, b in sizes)


def _input(name: str, specs: Sequence[TensorSpec]) -> TensorSpec:
    """What a caller gives to all who take it, which may be left out where all may do without."""
    needed = [spec for spec in specs if not spec.optional]
    return _renamed((needed or list(specs))[0], name, optional=not needed)


def _renamed(spec: TensorSpec, name: str, *, optional: bool = False) -> TensorSpec:
    return TensorSpec(name, spec.datatype, spec.shape, optional)
