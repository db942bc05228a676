"""What a request must look like for a model, how many rows it has, and with which others it may run."""

from collections.abc import Hashable, Sequence

import numpy as np
import pytest

from wakeful.batching.padding import Padder
from wakeful.config.settings import Padding
from wakeful.errors import InvalidInput
from wakeful.inference import InferRequest
from wakeful.models import signature as module
from wakeful.models.signature import Validator, cast
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.tensors import DTYPES, Tensor, element_count

A = TensorSpec("a", "FP32", ("N", 2))
B = TensorSpec("b", "INT64", ("N", "L"))
SCALE = TensorSpec("scale", "FP32", (1,), optional=True)
Y = TensorSpec("y", "FP32", ("N", 2))
Z = TensorSpec("z", "FP32", ("N",))


def tensor(spec: TensorSpec, *shape: int) -> Tensor:
    return Tensor(spec.name, spec.datatype, shape, bytes(element_count(shape) * DTYPES[spec.datatype].itemsize))


def validator(*inputs: TensorSpec, mergeable: bool = True, padder: Padder | None = None) -> Validator:
    return Validator(Signature(inputs, (Y, Z)), mergeable=mergeable, padder=padder)


def request(*inputs: Tensor, outputs: Sequence[str] | None = None, coerce: bool = False) -> InferRequest:
    return InferRequest("m", inputs, arrived=0.0, outputs=outputs, coerce=coerce)


def group(validate: Validator, *inputs: Tensor) -> Hashable:
    one = request(*inputs)
    validate(one)
    return one.group


def refusal(validate: Validator, one: InferRequest) -> str:
    with pytest.raises(InvalidInput) as caught:
        validate(one)
    return caught.value.message


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("inputs", "words"), [
    ([], ["inputs", "'a'"]),
    ([tensor(A, 1, 2)], ["inputs", "no 'b'"]),
    ([tensor(A, 1, 2), tensor(B, 1, 5), tensor(A, 1, 2)._replace(name="c")], ["inputs", "'c'", "['a', 'b']"]),
    ([tensor(A, 1, 2)._replace(datatype="FP64"), tensor(B, 1, 5)], ["input a", "datatype", "FP32", "FP64"]),
    ([tensor(A, 1, 3), tensor(B, 1, 5)], ["shape mismatch", "input a", "[N,2]", "[1,3]"]),
    ([tensor(A, 2), tensor(B, 1, 5)], ["shape mismatch", "input a", "[N,2]", "[2]"]),
    ([tensor(A, 1, 2, 1), tensor(B, 1, 5)], ["shape mismatch", "input a", "[1,2,1]"]),
    ([tensor(A, 1, 2), tensor(B)], ["shape mismatch", "input b", "[N,L]", "[]"]),
])
def test_every_refusal_names_the_field_and_both_sides(inputs: list[Tensor], words: list[str]) -> None:
    message = refusal(validator(A, B), request(*inputs))
    assert all(word in message for word in words), message


def test_an_output_that_is_not_there_is_refused_and_named() -> None:
    message = refusal(validator(A), request(tensor(A, 1, 2), outputs=["y", "nope"]))
    assert "outputs" in message
    assert "'nope'" in message
    assert "'y', 'z'" in message


def test_a_fixed_axis_0_is_named_in_the_refusal() -> None:
    """C04."""
    fixed = TensorSpec("x", "FP32", (1, 4))
    assert "expected [1,4], got [2,4]" in refusal(validator(fixed, mergeable=False), request(tensor(fixed, 2, 4)))


def test_an_unnamed_dimension_is_shown_as_a_question() -> None:
    unnamed = TensorSpec("x", "FP32", (None, 4))
    assert "[?,4]" in refusal(validator(unnamed), request(tensor(unnamed, 2, 5)))


def test_what_was_refused_is_refused_again() -> None:
    validate = validator(A)
    for _ in range(3):
        assert "input a" in refusal(validate, request(tensor(A, 1, 9)))


# ── order, rows, groups ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_inputs_are_found_by_name_not_by_place() -> None:
    """C09."""
    validate = validator(A, B)
    for _ in range(2):  # the second from memory
        swapped = request(tensor(B, 3, 5), tensor(A, 3, 2))
        validate(swapped)
        assert [one.name for one in swapped.inputs] == ["a", "b"]
        assert swapped.rows == 3
    assert swapped.group == group(validate, tensor(A, 1, 2), tensor(B, 1, 5)) is not None


def test_validating_twice_changes_nothing() -> None:
    """Whoever waited for a load is looked at once more."""
    validate, one = validator(A, B), request(tensor(B, 3, 5), tensor(A, 3, 2))
    validate(one)
    first = (list(one.inputs), one.rows, one.group)
    validate(one)
    assert (list(one.inputs), one.rows, one.group) == first


def test_only_equal_trailing_dimensions_share_a_group() -> None:
    validate = validator(B)
    assert group(validate, tensor(B, 1, 15)) == group(validate, tensor(B, 2, 15))
    assert group(validate, tensor(B, 3, 20)) not in (None, group(validate, tensor(B, 1, 15)))


@pytest.mark.parametrize("inputs", [
    pytest.param((tensor(A, 1, 2), tensor(B, 2, 5)), id="axis 0 differs"),
    pytest.param((tensor(A, 0, 2), tensor(B, 0, 5)), id="no rows"),
])
def test_what_has_no_common_rows_runs_alone(inputs: tuple[Tensor, ...]) -> None:
    assert group(validator(A, B), *inputs) is None


def test_rows_without_elements_run_alone_and_are_not_counted() -> None:
    """Any number of them fits into a small request."""
    empty = request(tensor(B, 2**40, 0))
    validator(B)(empty)
    assert (empty.group, empty.rows) == (None, 1)


def test_a_model_that_does_not_merge_gets_no_groups_but_rows() -> None:
    one = request(tensor(A, 5, 2))
    validator(A, mergeable=False)(one)
    assert (one.group, one.rows) == (None, 5)


def test_who_gives_an_optional_input_runs_alone() -> None:
    """It is one value for the whole run, which must not become a stranger's."""
    validate = validator(A, SCALE)
    assert group(validate, tensor(A, 1, 2), tensor(SCALE, 1)) is None
    assert group(validate, tensor(A, 1, 2)) is not None


def test_an_unknown_rank_takes_any_shape() -> None:
    """ONNX Runtime gives [] both for a scalar and for a tensor of unknown rank."""
    anything = TensorSpec("x", "FP32", ())
    validate = validator(anything)
    for shape in ((), (3,), (2, 3, 4)):
        validate(request(tensor(anything, *shape)))
    assert group(validate, tensor(anything)) is None, "a scalar has no rows"


def test_groups_of_different_validators_are_never_the_same() -> None:
    """What an earlier one has grouped may still wait."""
    assert group(validator(A), tensor(A, 1, 2)) != group(validator(A), tensor(A, 1, 2))


def test_a_padded_axis_may_differ() -> None:
    padder = Padder(Padding(axis=1), Signature((B,), ()))
    validate = validator(B, padder=padder)
    assert group(validate, tensor(B, 1, 15)) == group(validate, tensor(B, 2, 7)) is not None


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMO_SIZE", 8)
    validate = validator(B)
    before = group(validate, tensor(B, 1, 1))
    for length in range(2, 100):
        assert group(validate, tensor(B, 1, length)) != before
    assert len(validate._forms) <= 8
    assert len(validate._groups) <= 8


# ── casting what SnoozeML's clients send ─────────────────────────────────────────────────────────────────────────────────────────────────


def given_numbers(*values: float, datatype: str = "FP64") -> Tensor:
    return Tensor("x", datatype, (len(values),), np.array(values, DTYPES[datatype].numpy).tobytes())


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT32", "INT64", "UINT64", "FP16", "FP32", "FP64"])
def test_numbers_become_what_the_model_declares(datatype: str) -> None:
    spec = TensorSpec("x", datatype, ("N",))
    one = request(given_numbers(0, 1), coerce=True)
    validator(spec)(one)
    (made,) = one.inputs
    assert made.datatype == datatype
    assert np.frombuffer(made.data, DTYPES[datatype].numpy).tolist() == [0, 1]
    assert not one.coerce


@pytest.mark.parametrize(("datatype", "number"), [
    ("UINT8", 256), ("UINT8", -1), ("INT8", -129), ("INT64", 2.0**63), ("UINT64", 2.0**64), ("INT32", float("nan")), ("INT64", float("inf")),
    ("FP16", 65520), ("FP32", 1e39),
])
def test_a_number_that_does_not_fit_is_refused_and_named(datatype: str, number: float) -> None:
    with pytest.raises(InvalidInput, match=f"input x: data: expected numbers that fit {datatype}"):
        cast(given_numbers(1, number), TensorSpec("x", datatype, ("N",)))


@pytest.mark.parametrize("datatype", ["BYTES", "BF16"])
def test_a_type_that_the_dialect_has_not_is_refused_and_named(datatype: str) -> None:
    with pytest.raises(InvalidInput, match=f"input x: the model takes {datatype}"):
        cast(given_numbers(1), TensorSpec("x", datatype, ("N",)))


def test_an_unknown_name_is_left_to_the_check() -> None:
    assert "'x'" in refusal(validator(A), request(given_numbers(1), coerce=True))


def test_cast_refuses_a_fraction_for_whole_numbers() -> None:
    spec = TensorSpec("ids", "INT64", ("N",))
    whole = cast(Tensor("ids", "FP64", (2,), np.array([1.0, 7.0]).tobytes()), spec)
    assert np.frombuffer(whole.data, "<i8").tolist() == [1, 7]
    with pytest.raises(InvalidInput, match="input ids: data: expected whole numbers"):
        cast(Tensor("ids", "FP64", (1,), np.array([1.5]).tobytes()), spec)


# ── a model that declares nothing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def undeclared(*, mergeable: bool) -> Validator:
    return Validator(Signature((), (), "any", undeclared=True), mergeable=mergeable)


def test_what_is_not_declared_is_not_checked_and_stays_in_its_order() -> None:
    one = request(tensor(B, 2, 5), tensor(A, 3), outputs=["whatever"])
    undeclared(mergeable=False)(one)
    assert ([given.name for given in one.inputs], one.group) == (["b", "a"], None)


def test_what_is_not_declared_merges_by_its_own_forms_where_somebody_says_so() -> None:
    validate = undeclared(mergeable=True)
    assert group(validate, tensor(A, 1, 2)) == group(validate, tensor(A, 7, 2))
    assert len({group(validate, tensor(A, 1, 2)), group(validate, tensor(A, 1, 3)), group(validate, tensor(Z, 1, 2))}) == 3
    assert group(validate, tensor(A, 1, 2), tensor(B, 2, 2)) is None


def test_numbers_without_a_datatype_stay_32_bit_floats() -> None:
    one = request(Tensor("x", "FP64", (2,), np.array([1.5, 2.0]).tobytes()), coerce=True)
    undeclared(mergeable=False)(one)
    assert one.inputs[0] == Tensor("x", "FP32", (2,), np.array([1.5, 2.0], "<f4").tobytes())
