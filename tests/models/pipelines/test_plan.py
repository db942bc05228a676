"""Plans follow from signatures; two models must have the same idea of each tensor."""

import pytest

from wakeful.config.settings import PipelineSettings, StepSettings
from wakeful.errors import NotFound, Overloaded, Unavailable
from wakeful.models.pipelines.plan import make_plan, of_step
from wakeful.runtime.messages import Signature, TensorSpec

Shape = tuple[int | str | None, ...]


def signature(inputs: list[TensorSpec], outputs: list[TensorSpec]) -> Signature:
    return Signature(tuple(inputs), tuple(outputs))


def chain(given: TensorSpec, taken: TensorSpec) -> tuple[PipelineSettings, list[Signature]]:
    settings = PipelineSettings("p", (StepSettings("m", outputs={given.name: "t"}), StepSettings("n", name="last", inputs={taken.name: "t"})))
    x, y = TensorSpec("x", "BYTES", ("N",)), TensorSpec("y", "FP32", ("N", 2))
    return settings, [signature([x], [given]), signature([taken], [y])]


@pytest.mark.parametrize(("given", "taken"), [
    (("N", 4), ("M", 4)), (("N", None), (None, 4)), (("N", 4), (1, 4)), ((), (1, 2, 3)), ((2,), ()),
])
def test_shapes_that_may_be_the_same(given: Shape, taken: Shape) -> None:
    plan = make_plan(*chain(TensorSpec("a", "FP32", given), TensorSpec("b", "FP32", taken)))
    assert plan.first == (0,)
    assert [spec.name for spec in plan.signature.inputs] == ["x"]
    assert plan.signature.outputs == (TensorSpec("y", "FP32", ("N", 2)),)
    assert plan.signature.platform == "ensemble"


@pytest.mark.parametrize(("given", "taken", "said"), [
    (("FP32", ("N", 4)), ("INT64", ("N", 4)), "it takes `t` as INT64[N,4], and step 1 (model m) gives FP32[N,4]"),
    (("FP32", ("N", 4)), ("FP32", ("N", 3)), "it takes `t` as FP32[N,3], and step 1 (model m) gives FP32[N,4]"),
    (("FP32", ("N", 4)), ("FP32", ("N",)), "it takes `t` as FP32[N], and step 1 (model m) gives FP32[N,4]"),
])
def test_those_that_cannot(given: tuple[str, Shape], taken: tuple[str, Shape], said: str) -> None:
    with pytest.raises(Unavailable) as caught:
        make_plan(*chain(TensorSpec("a", *given), TensorSpec("b", *taken)))
    assert caught.value.message == f"pipeline p cannot be run: step last (model n): {said}"
    assert caught.value.unstarted


def test_a_model_that_declares_nothing_has_no_names_to_be_found_by() -> None:
    settings, [first, _] = chain(TensorSpec("a", "FP32", ("N",)), TensorSpec("b", "FP32", ("N",)))
    with pytest.raises(Unavailable, match=r"step last \(model n\): its model declares no tensors, .* \(a Python model does that with `signature`\)$"):
        make_plan(settings, [first, Signature((), (), "any", undeclared=True)])


def test_two_who_take_the_same_of_the_caller() -> None:
    settings = PipelineSettings("p", (StepSettings("m", outputs={"y": "one"}), StepSettings("n")), outputs=("one", "y"))

    def models(datatype: str, *, optional: bool) -> list[Signature]:
        y = TensorSpec("y", "FP32", ("N",))
        return [signature([TensorSpec("x", "FP32", ("N",), optional)], [y]), signature([TensorSpec("x", datatype, ("B",), True)], [y])]

    assert make_plan(settings, models("FP32", optional=True)).signature.inputs == (TensorSpec("x", "FP32", ("N",), True),)
    assert make_plan(settings, models("FP32", optional=False)).signature.inputs == (TensorSpec("x", "FP32", ("N",), False),)
    with pytest.raises(Unavailable, match=r"it takes `x` as INT64\[B\], and step 1 \(model m\) takes it as FP32\[N\]"):
        make_plan(settings, models("INT64", optional=False))


def test_what_is_wrong_with_names_is_told_with_its_hint() -> None:
    models = [signature([TensorSpec("x", "FP32", ("N",))], [TensorSpec("y", "FP32", ("N",))])]
    with pytest.raises(Unavailable, match=r"pipeline p cannot be run: no step makes `z` \(there are `y`\)"):
        make_plan(PipelineSettings("p", (StepSettings("m"),), outputs=("z",)), models)


def test_errors_name_the_step_and_stay_what_they_are() -> None:
    told = of_step("step 2 (model m)", Overloaded("full", retry_after=2.0, unstarted=True), unstarted=False)
    assert (type(told), told.message, told.retry_after, told.unstarted) == (Overloaded, "step 2 (model m): full", 2.0, False)
    assert type(of_step("step 1 (model m)", NotFound("no model is called 'm'"))) is Unavailable
