"""Which step gives what to which: by names alone, with all signatures known or with none."""

from collections.abc import Sequence

import pytest

from wakeful.config.settings import PipelineSettings, StepSettings
from wakeful.config.wiring import Link, Names, faults_of, wire

UNKNOWN = None
ONE, TWO = "step 1 (model m)", "step 2 (model n)"


def step(model: str, inputs: dict[str, str] | None = None, outputs: dict[str, str] | None = None, name: str | None = None) -> StepSettings:
    return StepSettings(model, None, name, inputs or {}, outputs or {})


def pipeline(*steps: StepSettings, inputs: tuple[str, ...] | None = None, outputs: tuple[str, ...] | None = None) -> PipelineSettings:
    return PipelineSettings("p", steps, inputs, outputs)


def names(inputs: str, outputs: str) -> Names:
    return Names(tuple(inputs.split()), tuple(outputs.split()))


TOKENIZE, ENCODE, CLASSIFY = names("text", "ids mask"), names("input_ids mask", "vector"), names("vector", "score label")


def told(settings: PipelineSettings, *declared: Names | None) -> list[tuple[int | None, str, str]]:
    return [(fault.step, fault.key, fault.message) for fault in faults_of(settings, declared)]


def test_a_chain_flows_by_name_and_maps_rename() -> None:
    settings = pipeline(step("t", {"text": "TEXT"}, {"ids": "input_ids"}), step("e"), step("c", outputs={"score": "SCORE"}), outputs=("SCORE",))
    declared = [TOKENIZE, ENCODE, CLASSIFY]
    assert not faults_of(settings, declared)
    wiring = wire(settings, declared)
    assert (wiring.inputs, wiring.outputs) == (("TEXT",), ("SCORE",))
    tokenize, encode, classify = wiring.steps
    assert tokenize.takes == (Link("text", "TEXT"),)
    assert tokenize.gives == (Link("ids", "input_ids"), Link("mask", "mask"))
    assert (tokenize.waits, tokenize.before) == (0, (1,))
    assert (encode.waits, encode.before) == (1, (2,))
    assert (classify.waits, classify.before, classify.gives) == (1, (), (Link("score", "SCORE"),))  # nobody wants the label


def test_the_outputs_of_the_last_step_are_those_of_the_pipeline() -> None:
    assert wire(pipeline(step("e"), step("c")), [ENCODE, CLASSIFY]).outputs == ("score", "label")


def test_steps_that_do_not_depend_on_each_other_wait_for_the_same_ones() -> None:
    """In whatever order they are written."""
    join = names("left right", "y")
    left, right = step("neg", {"x": "p"}, {"y": "left"}), step("neg", {"x": "q"}, {"y": "right"})
    settings = pipeline(step("join"), left, right, step("fork"), outputs=("y",))
    wiring = wire(settings, [join, names("x", "y"), names("x", "y"), names("x", "p q")])
    assert [(one.waits, one.before) for one in wiring.steps] == [(2, ()), (1, (0,)), (1, (0,)), (0, (1, 2))]
    assert (wiring.inputs, wiring.outputs) == (("x",), ("y",))


def test_two_tensors_of_one_step_are_waited_for_once() -> None:
    wiring = wire(pipeline(step("fork"), step("join", {"a": "p", "b": "q"})), [names("x", "p q"), names("a b", "y")])
    assert [one.waits for one in wiring.steps] == [0, 1]


def test_callers_give_what_no_step_makes_in_the_order_that_is_told() -> None:
    declared = [names("a b", "c"), names("c d a", "y")]
    assert wire(pipeline(step("m"), step("n")), declared).inputs == ("a", "b", "d")
    assert wire(pipeline(step("m"), step("n"), inputs=("d", "b", "a")), declared).inputs == ("d", "b", "a")


@pytest.mark.parametrize(("settings", "declared", "expected"), [
    (pipeline(step("m", {"txt": "T"})), [TOKENIZE], (0, "inputs", "its model has no input `txt`")),
    (pipeline(step("m", outputs={"id": "T"})), [TOKENIZE], (0, "outputs", "its model has no output `id`")),
    (pipeline(step("m"), step("n", name="second")), [names("a", "y"), names("b", "y")], (1, "outputs", "it makes `y`, as step 1 (model m) does")),
    (pipeline(step("m", outputs={"y": "s", "z": "s"})), [UNKNOWN], (0, "outputs", "it makes `s`, twice")),
    (pipeline(step("m")), [names("x", "x")], (0, "inputs", "it takes `x` and makes `x`")),
    (
        pipeline(step("m", {"a": "two"}, {"y": "one"}), step("n", {"a": "one"}, {"y": "two"})), [UNKNOWN, UNKNOWN],
        (1, "inputs", f"steps wait for each other: {ONE} gives `one` to {TWO}; {TWO} gives `two` to {ONE}"),
    ),
    (pipeline(step("m"), outputs=("z",)), [names("x", "y")], (None, "outputs", "no step makes `z`")),
    (
        pipeline(step("m"), inputs=("y",)), [names("x", "y")],
        (0, "outputs", "it makes `y`, which is an input of the pipeline"),
    ),
    (
        pipeline(step("m"), inputs=("text",)), [names("text lang", "y")],
        (0, "inputs", "it takes `lang`, which no step makes and which is no input of the pipeline"),
    ),
    (pipeline(step("m"), inputs=("x", "z")), [names("x", "y")], (None, "inputs", "no step takes `z`")),
    (pipeline(step("t"), step("e", {"mask": "m2"})), [TOKENIZE, ENCODE], (0, "outputs", "nobody takes what it makes: `ids`, `mask`")),
])
def test_faults(settings: PipelineSettings, declared: Sequence[Names | None], expected: tuple[int | None, str, str]) -> None:
    assert told(settings, *declared) == [expected]


@pytest.mark.parametrize("settings", [
    pipeline(step("m"), outputs=("whatever",)),
    pipeline(step("m"), step("n"), inputs=("x",)),
    pipeline(step("m", {"a": "one"}), step("n", outputs={"y": "one"})),
])
def test_what_is_not_known_yet_is_no_fault(settings: PipelineSettings) -> None:
    assert not told(settings, *[UNKNOWN] * len(settings.steps))


def test_hints_name_what_was_meant() -> None:
    (fault,) = faults_of(pipeline(step("m"), outputs=("scroe",)), [CLASSIFY])
    assert fault.hint == "did you mean `score`?"
    (fault,) = faults_of(pipeline(step("t"), step("e", {"mask": "m2"})), [TOKENIZE, ENCODE])
    assert fault.hint == 'rename it: outputs = { ids = "..." }; callers have to give `text`, `input_ids`, `m2`'
