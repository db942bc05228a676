"""A request's way through a pipeline: what is asked of models when, and how the caller is told. No daemon, no time."""

from collections.abc import Sequence

import pytest

from wakeful.batching.settling import Settler
from wakeful.config.settings import PipelineSettings, StepSettings
from wakeful.errors import ExecutionFailed, Overloaded, TimedOut, WakefulError
from wakeful.inference import InferRequest
from wakeful.models.pipelines.passage import Passage
from wakeful.models.pipelines.plan import make_plan
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.telemetry.metrics import ModelStats
from wakeful.tensors import Tensor


def tensor(name: str, data: bytes = b"\0\0\0\0") -> Tensor:
    return Tensor(name, "FP32", (1,), data)


def model(inputs: str, outputs: str, optional: str = "") -> Signature:
    given = [TensorSpec(name, "FP32", ("N",), name in optional.split()) for name in inputs.split()]
    return Signature(tuple(given), tuple(TensorSpec(name, "FP32", ("N",)) for name in outputs.split()))


class Caller(InferRequest, kw_only=True):
    told: list[object] = []  # noqa: RUF012 - msgspec copies it for each

    def answer(self, outputs: Sequence[Tensor], run_seconds: float) -> None:
        self.told.append(({output.name: bytes(output.data) for output in outputs}, run_seconds))

    def refuse(self, error: WakefulError) -> None:
        self.told.append(error)


class Stage:
    """A pipeline of models that do as they are told: `asked` is what they were asked and have not answered."""

    def __init__(self, *models: tuple[str, Signature], outputs: tuple[str, ...] | None = None, refuses: str = "") -> None:
        self.plan = make_plan(PipelineSettings("p", tuple(StepSettings(name) for name, _ in models), outputs=outputs), [each for _, each in models])
        self.asked: dict[str, InferRequest] = {}
        self.refuses = refuses
        self.stats = ModelStats("p")
        self.settlers = {name: Settler(ModelStats(name)) for name, _ in models}
        self.caller = Caller("p", [], 0.0, protocol="oip", id="an id", parameters={"a": 1})

    def infer(self, request: InferRequest, version: str | None) -> None:
        if request.model == self.refuses:
            raise Overloaded("full", retry_after=3.0, unstarted=True)
        self.asked[request.model] = request

    def begin(self, *inputs: Tensor) -> None:
        self.caller.inputs = inputs
        Passage(self.caller, self.plan, Settler(self.stats), self.infer).begin()

    def answer(self, name: str, *outputs: Tensor, seconds: float = 1.0) -> None:
        """As a batcher does: the outputs are gone when it returns."""
        memory = [bytearray(output.data) for output in outputs]
        self.settlers[name].answer(
            self.asked.pop(name), [output._replace(data=memoryview(part)) for output, part in zip(outputs, memory, strict=True)], seconds,
        )
        for part in memory:
            part[:] = b"\xff" * len(part)

    def refuse(self, name: str, error: WakefulError) -> None:
        self.settlers[name].refuse(self.asked.pop(name), error)

    def drop(self, name: str) -> None:
        self.settlers[name].drop(self.asked.pop(name), 0.0)

    @property
    def error(self) -> WakefulError:
        (told,) = self.caller.told
        assert isinstance(told, WakefulError)
        return told


def diamond() -> Stage:
    return Stage(("fork", model("x", "p q")), ("one", model("p", "r")), ("two", model("q", "s")), ("join", model("r s", "y")))


def test_steps_begin_as_soon_as_what_they_take_is_there() -> None:
    stage = diamond()
    stage.begin(tensor("x"))
    assert set(stage.asked) == {"fork"}
    stage.answer("fork", tensor("p", b"pppp"), tensor("q", b"qqqq"))
    assert set(stage.asked) == {"one", "two"}
    assert [bytes(given.data) for given in stage.asked["two"].inputs] == [b"qqqq"]
    stage.answer("two", tensor("s", b"ssss"))
    assert set(stage.asked) == {"one"}
    stage.answer("one", tensor("r", b"rrrr"))
    assert [(given.name, bytes(given.data)) for given in stage.asked["join"].inputs] == [("r", b"rrrr"), ("s", b"ssss")]
    stage.answer("join", tensor("y", b"yyyy"))
    assert stage.caller.told == [({"y": b"yyyy"}, 4.0)]
    assert stage.stats.requests == {("oip", "ok"): 1}


def test_steps_carry_what_the_caller_said_and_have_arrived_when_they_began() -> None:
    stage = Stage(("m", model("x", "y")))
    stage.caller.deadline = 7.0
    stage.begin(tensor("x"))
    step = stage.asked["m"]
    assert (step.id, step.parameters, step.deadline, step.protocol, step.coerce) == ("an id", {"a": 1}, 7.0, "pipeline", False)
    assert step.arrived > 0.0


def test_outputs_of_an_early_step_are_kept_for_the_caller() -> None:
    stage = Stage(("m", model("x", "a b")), ("n", model("a", "y")), outputs=("b", "y", "a"))
    stage.begin(tensor("x"))
    stage.answer("m", tensor("a", b"aaaa"), tensor("b", b"bbbb"))
    stage.answer("n", tensor("y", b"yyyy"))
    assert stage.caller.told == [({"b": b"bbbb", "y": b"yyyy", "a": b"aaaa"}, 2.0)]


def test_what_is_optional_may_be_left_out() -> None:
    stage = Stage(("m", model("x scale", "y", optional="scale")))
    stage.begin(tensor("x"))
    assert [given.name for given in stage.asked["m"].inputs] == ["x"]


def test_a_failed_step_refuses_the_caller_once_and_drops_the_others() -> None:
    stage = diamond()
    stage.begin(tensor("x"))
    stage.answer("fork", tensor("p"), tensor("q"))
    stage.refuse("one", ExecutionFailed("it broke"))
    assert stage.error.message == "step 2 (model one): it broke"
    assert stage.asked["two"].left
    stage.answer("two", tensor("s"))  # it ran already
    assert not stage.asked
    assert len(stage.caller.told) == 1
    assert stage.stats.requests == {("oip", "execution_failed"): 1}


def test_both_may_fail() -> None:
    stage = diamond()
    stage.begin(tensor("x"))
    stage.answer("fork", tensor("p"), tensor("q"))
    stage.refuse("one", TimedOut("too late"))
    stage.refuse("two", TimedOut("too late"))
    assert stage.error.message == "step 2 (model one): too late"


def test_who_has_left_is_counted_once_whatever_was_under_way() -> None:
    stage = diamond()
    stage.begin(tensor("x"))
    stage.answer("fork", tensor("p"), tensor("q"))
    stage.caller.left = True
    stage.drop("one")
    stage.answer("two", tensor("s"))
    assert (stage.caller.told, stage.asked, stage.stats.requests) == ([], {}, {("oip", "left"): 1})


def test_a_first_step_that_is_not_taken_is_raised_and_takes_the_others_with_it() -> None:
    stage = Stage(("a", model("x", "p")), ("b", model("x", "q")), ("c", model("p q", "y")), refuses="b")
    with pytest.raises(Overloaded) as caught:
        stage.begin(tensor("x"))
    assert (caught.value.message, caught.value.retry_after) == ("step 2 (model b): full", 3.0)
    assert not caught.value.unstarted  # the other may run
    assert stage.asked["a"].left
    stage.drop("a")
    assert (stage.caller.told, stage.caller.settled, stage.stats.requests) == ([], False, {})  # whoever caught it settles the caller


def test_work_surely_did_not_start_if_the_only_step_so_far_was_not_taken() -> None:
    stage = Stage(("a", model("x", "p")), ("b", model("p", "y")), refuses="a")
    with pytest.raises(Overloaded) as caught:
        stage.begin(tensor("x"))
    assert caught.value.unstarted
    stage = Stage(("a", model("x", "p")), ("b", model("p", "y")))
    stage.begin(tensor("x"))
    stage.refuse("a", TimedOut("in the queue", unstarted=True))
    assert stage.error.unstarted


def test_a_later_step_that_is_not_taken_refuses_the_caller() -> None:
    stage = Stage(("a", model("x", "p")), ("b", model("p", "y")), refuses="b")
    stage.begin(tensor("x"))
    stage.answer("a", tensor("p"))
    assert (stage.error.message, stage.error.retry_after, stage.error.unstarted) == ("step 2 (model b): full", 3.0, False)


def test_a_step_whose_time_is_up_does_not_begin() -> None:
    stage = Stage(("a", model("x", "p")), ("b", model("p", "y")))
    stage.caller.deadline = 1.0  # long ago
    stage.begin(tensor("x"))
    stage.answer("a", tensor("p"))
    assert isinstance(stage.error, TimedOut)
    assert stage.error.message.startswith("step 2 (model b): the deadline passed after ")
    assert not stage.asked


def test_who_has_left_begins_no_step() -> None:
    stage = Stage(("a", model("x", "p q")), ("b", model("p", "y")), ("c", model("q", "z")), outputs=("y", "z"))
    stage.begin(tensor("x"))
    step = stage.asked["a"]
    step.settled = True
    stage.caller.left = True
    step.answer([tensor("p"), tensor("q")], 1.0)  # it leaves in this very moment
    assert (set(stage.asked), stage.stats.requests) == ({"a"}, {("oip", "left"): 1})


def test_a_model_that_gives_less_than_it_declares_is_an_error_of_its_step() -> None:
    stage = Stage(("a", model("x", "p")), ("b", model("p", "y")))
    stage.begin(tensor("x"))
    stage.answer("a")
    assert stage.error.message == "step 1 (model a): it gave no 'p'"
