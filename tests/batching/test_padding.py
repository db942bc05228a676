"""Filling up inputs of unequal length, and cutting outputs back."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.batching.stage import Asked, Stage, staged
from wakeful.batching.padding import Padder, length_class
from wakeful.batching.policy import Limits
from wakeful.config.settings import Padding
from wakeful.errors import ExecutionFailed, InvalidInput
from wakeful.inference import InferRequest
from wakeful.models.signature import Validator
from wakeful.runtime.messages import Placement, Signature, TensorSpec
from wakeful.tensors import Tensor, encode_strings

IDS = TensorSpec("ids", "INT64", ("N", "L"))
MASK = TensorSpec("mask", "INT64", ("N", "L"))
TOKENS = TensorSpec("tokens", "FP32", ("N", "L", 2))
POOLED = TensorSpec("pooled", "FP32", ("N", 8))


def padder(
    *, value: float = 0, mask: str | None = "mask", buckets: tuple[int, ...] = (), inputs: Sequence[TensorSpec] = (IDS, MASK),
    outputs: Sequence[TensorSpec] = (),
) -> Padder:
    return Padder(Padding(1, value, mask, buckets), Signature(tuple(inputs), tuple(outputs)))


def ids(*rows: Sequence[int]) -> Tensor:
    array = np.array(rows, "<i8")
    return Tensor("ids", "INT64", array.shape, array.tobytes())


def request(*inputs: Tensor) -> InferRequest:
    return Asked("m", inputs, 0.0, rows=inputs[0].shape[0], group="g")


def filled(pad: Padder, *requests: InferRequest) -> list[Sequence[Tensor]]:
    return pad.fill(requests, pad.common_length(requests))


def cut(pad: Padder, requests: Sequence[InferRequest], answers: Sequence[list[Tensor]]) -> list[list[Tensor]]:
    return pad.cut(requests, answers, pad.common_length(requests))


def numbers(tensor: Tensor, kind: str = "<i8") -> list[object]:
    array: list[object] = np.frombuffer(tensor.data, kind).reshape(tensor.shape).tolist()
    return array


# ── inputs ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_shorter_inputs_are_filled_up_to_the_longest() -> None:
    short, long = request(ids([1, 2])), request(ids([3, 4, 5], [6, 7, 8]))
    first, second = filled(padder(value=9), short, long)
    assert numbers(first[0]) == [[1, 2, 9]]
    assert second is long.inputs


def test_a_missing_mask_is_made_of_ones_and_filled_up_with_zeros() -> None:
    pad = padder(value=9)
    short = request(*pad.with_mask([ids([1, 2])]))
    assert short.inputs[1][:3] == ("mask", "INT64", (1, 2))
    _, mask = filled(pad, short, request(*pad.with_mask([ids([1, 2, 3, 4])])))[0]
    assert numbers(mask) == [[1, 1, 0, 0]]


def test_a_mask_that_was_sent_is_kept() -> None:
    given = [ids([1, 2]), ids([1, 0])._replace(name="mask")]
    pad = padder()
    assert pad.with_mask(given) is given
    _, mask = filled(pad, request(*given), request(*pad.with_mask([ids([1, 2, 3])])))[0]
    assert numbers(mask) == [[1, 0, 0]]


@pytest.mark.parametrize(("datatype", "one"), [("INT32", 1), ("FP32", 1.0), ("BOOL", True), ("FP16", 1.0), ("BF16", 0x3F80)])
def test_a_mask_has_the_type_that_the_model_declares(datatype: str, one: object) -> None:
    made = padder(inputs=[IDS, TensorSpec("mask", datatype, ("N", "L"))]).with_mask([ids([5])])[1]
    kind = {"INT32": "<i4", "FP32": "<f4", "BOOL": "?", "FP16": "<f2", "BF16": "<u2"}[datatype]
    assert numbers(made, kind) == [[one]]


def test_a_mask_takes_its_sizes_from_the_names_of_dimensions() -> None:
    wide = TensorSpec("mask", "FP32", ("N", "L", 1))
    made = padder(inputs=[IDS, wide]).with_mask([ids([5, 6], [7, 8])])[1]
    assert made.shape == (2, 2, 1)


def test_no_mask_is_made_that_is_larger_than_what_came() -> None:
    """A shape without elements may name any size."""
    deep = TensorSpec("x", "FP32", ("N", "L", "F"))
    given = [Tensor("x", "FP32", (10**6, 10**6, 0), b"")]
    assert padder(inputs=[deep, MASK]).with_mask(given) is given


@pytest.mark.parametrize("given", [[], [ids([1])._replace(name="other")], [Tensor("ids", "INT64", (), bytes(8))]])
def test_inputs_that_make_no_sense_are_left_to_the_validator(given: list[Tensor]) -> None:
    assert padder().with_mask(given) is given


def test_texts_are_filled_up_with_empty_ones() -> None:
    texts = TensorSpec("x", "BYTES", ("N", "L"))
    short = request(Tensor("x", "BYTES", (1, 1), encode_strings([b"a"])))
    long = request(Tensor("x", "BYTES", (1, 3), encode_strings([b"", b"bc", b"d"])))
    (tensor,) = filled(padder(inputs=[texts]), short, long)[0]
    assert (tensor.shape, tensor.data) == ((1, 3), encode_strings([b"a", b"", b""]))


def test_empty_inputs_are_filled_up_too() -> None:
    empty = request(Tensor("ids", "INT64", (1, 0), b""))
    assert numbers(filled(padder(value=7), empty, request(ids([1, 2])))[0][0]) == [[7, 7]]


def test_bf16_is_filled_with_the_same_number() -> None:
    short = request(Tensor("x", "BF16", (1, 1), b"\x80\x3f"))
    long = request(Tensor("x", "BF16", (1, 2), b"\x80\x3f" * 2))
    (tensor,) = filled(padder(value=-2.0, inputs=[TensorSpec("x", "BF16", ("N", "L"))]), short, long)[0]
    assert tensor.data == b"\x80\x3f\x00\xc0"


@pytest.mark.parametrize(("lengths", "common"), [([3], 4), ([4], 4), ([1, 5], 8), ([8], 8), ([9], 9), ([2, 11], 11)])
def test_with_buckets_all_are_filled_up_to_the_next_one(lengths: list[int], common: int) -> None:
    pad = padder(buckets=(4, 8), outputs=[TOKENS])
    requests = [request(ids([7] * length)) for length in lengths]
    assert pad.common_length(requests) == common
    assert [numbers(inputs[0]) for inputs in filled(pad, *requests)] == [[[7] * length + [0] * (common - length)] for length in lengths]


def test_a_request_whose_inputs_disagree_in_length_stays_as_it_is() -> None:
    odd = request(ids([1, 2]), ids([1, 1, 1])._replace(name="mask"))
    pad = padder(buckets=(4,), outputs=[TOKENS])
    assert filled(pad, odd) == [odd.inputs]
    answer = [output(TOKENS, 1, 2, 2)]
    assert cut(pad, [odd], [answer]) == [answer]


# ── which requests ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def group(validate: Validator, *inputs: Tensor) -> object:
    one = request(*inputs)
    validate(one)
    return one.group


def test_requests_that_differ_in_length_alone_share_a_group() -> None:
    signature = Signature((IDS, MASK), (TOKENS,))
    validate = Validator(signature, mergeable=True, padder=Padder(Padding(1, 0, "mask"), signature))
    assert group(validate, ids([1])) == group(validate, ids([1, 2, 3], [4, 5, 6])) is not None
    mask = ids([1, 1, 1])._replace(name="mask")
    assert group(validate, ids([1, 2, 3]), mask) == group(validate, ids([1]))
    assert group(validate, ids([1, 2]), mask) not in (None, group(validate, ids([1]))), "alone it fails, so company must not mend it"


def test_without_padding_lengths_must_agree() -> None:
    validate = Validator(Signature((IDS,), ()), mergeable=True)
    assert group(validate, ids([1])) != group(validate, ids([1, 2]))


def test_an_input_that_cannot_hold_the_value_must_agree_in_length() -> None:
    signature = Signature((IDS,), ())
    validate = Validator(signature, mergeable=True, padder=Padder(Padding(1, 0.5), signature))
    assert group(validate, ids([1])) != group(validate, ids([1, 2]))


def test_a_fixed_axis_is_no_length() -> None:
    extra = TensorSpec("extra", "INT64", ("N", 4))
    signature = Signature((IDS, extra), ())
    validate = Validator(signature, mergeable=True, padder=Padder(Padding(1), signature))
    given = ids([0, 0, 0, 0])._replace(name="extra")
    assert group(validate, ids([1]), given) == group(validate, ids([1, 2]), given) is not None


def test_a_mask_that_the_model_needs_and_nothing_tells_is_missed() -> None:
    signature = Signature((MASK, TensorSpec("x", "FP32", ("N", 3))), ())
    validate = Validator(signature, mergeable=True, padder=Padder(Padding(1, 0, "mask"), signature))
    with pytest.raises(InvalidInput, match="no 'mask'"):
        validate(request(Tensor("x", "FP32", (1, 3), bytes(12))))


# ── outputs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def output(spec: TensorSpec, *shape: int) -> Tensor:
    return Tensor(spec.name, "FP32", shape, np.arange(np.prod(shape), dtype="<f4").tobytes())


def test_outputs_are_cut_along_the_named_dimension_only() -> None:
    pad = padder(outputs=[TOKENS, POOLED])
    requests = [request(ids([1, 2])), request(ids([1, 2, 3]))]
    answers = cut(pad, requests, [[output(TOKENS, 1, 3, 2), output(POOLED, 1, 8)]] * 2)
    assert [[tensor.shape for tensor in answer] for answer in answers] == [[(1, 2, 2), (1, 8)], [(1, 3, 2), (1, 8)]]
    assert numbers(answers[0][0], "<f4") == [[[0, 1], [2, 3]]]


def test_an_output_may_have_the_dimension_twice() -> None:
    attention = TensorSpec("a", "FP32", ("N", 1, "L", "L"))
    pad = padder(outputs=[attention])
    (short,), _ = cut(pad, [request(ids([1, 2])), request(ids([1, 2, 3]))], [[output(attention, 1, 1, 3, 3)]] * 2)
    assert numbers(short, "<f4") == [[[[0, 1], [3, 4]]]]


def test_texts_are_cut_too() -> None:
    names = TensorSpec("t", "BYTES", ("N", "L"))
    tensor = Tensor("t", "BYTES", (1, 3), encode_strings([b"a", b"", b"ccc"]))
    (short,), _ = cut(padder(outputs=[names]), [request(ids([1, 2])), request(ids([1, 2, 3]))], [[tensor]] * 2)
    assert (short.shape, short.data) == ((1, 2), encode_strings([b"a", b""]))


def test_equal_lengths_need_no_cut() -> None:
    unnamed = TensorSpec("y", "FP32", ("N", None))
    answer = [output(unnamed, 1, 2)]
    assert cut(padder(outputs=[unnamed]), [request(ids([1, 2]))] * 2, [answer, answer]) == [answer, answer]


def lone(pad: Padder, length: int, *shape: int) -> None:
    pad.learn(request(ids([0] * length)), [Placement("y", "FP32", shape, 0, 0)])


@pytest.mark.parametrize("runs", [
    pytest.param([], id="nothing seen"),
    pytest.param([(3, 1, 3)], id="a coincidence"),
    pytest.param([(3, 1, 3), (3, 2, 3)], id="the same again"),
    pytest.param([(2, 1, 1), (4, 1, 2)], id="half the length"),
    pytest.param([(2, 1, 2), (4, 1)], id="another rank"),
])
def test_an_unnamed_dimension_is_not_cut_by_guess(runs: list[tuple[int, ...]]) -> None:
    unnamed = TensorSpec("y", "FP32", ("N", None))
    pad = padder(outputs=[unnamed])
    for length, *shape in runs:
        lone(pad, length, *shape)
    with pytest.raises(ExecutionFailed, match="output y"):
        cut(pad, [request(ids([1])), request(ids([1, 2, 3]))], [[output(unnamed, 1, 3)]] * 2)


@pytest.mark.parametrize(("runs", "size"), [([(2, 1, 2), (5, 1, 5)], 1), ([(3, 1, 3), (5, 1, 3)], 3)])
def test_two_lone_runs_tell_whether_an_unnamed_dimension_follows(runs: list[tuple[int, ...]], size: int) -> None:
    unnamed = TensorSpec("y", "FP32", ("N", None))
    pad = padder(outputs=[unnamed])
    for length, *shape in runs:
        lone(pad, length, *shape)
    answers = cut(pad, [request(ids([1])), request(ids([1, 2, 3]))], [[output(unnamed, 1, 3)]] * 2)
    assert [answer[0].shape for answer in answers] == [(1, size), (1, 3)]


def test_a_declared_dimension_of_another_size_is_not_cut() -> None:
    pad = padder(outputs=[TOKENS])
    with pytest.raises(ExecutionFailed, match="tokens"):
        cut(pad, [request(ids([1])), request(ids([1, 2, 3]))], [[output(TOKENS, 1, 2, 2)]] * 2)


def test_what_was_filled_up_to_a_bucket_is_cut_back() -> None:
    pad = padder(buckets=(4,), outputs=[TOKENS, POOLED])
    ((tokens, pooled),) = cut(pad, [request(ids([1, 2]))], [[output(TOKENS, 1, 4, 2), output(POOLED, 1, 8)]])
    assert numbers(tokens, "<f4") == [[[0, 1], [2, 3]]]
    assert pooled.shape == (1, 8)


def test_lone_runs_that_are_to_tell_what_follows_the_length_are_not_filled_up() -> None:
    pad = padder(buckets=(4,), outputs=[TensorSpec("y", "FP32", ("N", None))])
    asked = [request(ids([1, 2]))]
    assert pad.common_length(asked) == 2
    assert pad.common_length(asked * 2) == 4
    lone(pad, 2, 1, 2)
    lone(pad, 3, 1, 3)
    assert pad.common_length(asked) == 4


# ── through the batcher ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ask(stage: Stage, *rows: Sequence[int]) -> Asked:
    return stage.ask_tensors(ids(*rows))


@staged(max_rows=4)
async def test_unequal_lengths_share_a_run_and_get_their_own_back(stage: Stage) -> None:
    stage.batcher.padder = padder(outputs=[IDS])
    replica = stage.replica()
    asked = [ask(stage, [1, 2]), ask(stage, [3, 4, 5], [6, 7, 8]), ask(stage, [9])]
    await stage.serve()
    assert replica.shapes == [(4, 3)]
    assert [numbers(request.outputs_told[0]) for request in asked] == [[[1, 2]], [[3, 4, 5], [6, 7, 8]], [[9]]]


@staged(max_rows=2)
async def test_where_the_names_do_not_tell_the_first_run_one_by_one(stage: Stage) -> None:
    stage.batcher.padder = padder(outputs=[TensorSpec("ids", "INT64", ("N", None))])
    replica = stage.replica()
    for _ in range(2):
        asked = [ask(stage, [1, 2]), ask(stage, [3, 4, 5])]
        await stage.serve()
        assert [numbers(request.outputs_told[0]) for request in asked] == [[[1, 2]], [[3, 4, 5]]]
    assert replica.shapes == [(2, 3), (1, 2), (1, 3), (2, 3)]


@staged(max_rows=2)
async def test_with_buckets_the_model_sees_few_shapes(stage: Stage) -> None:
    stage.batcher.padder = padder(buckets=(4, 8), outputs=[IDS])
    replica = stage.replica()
    for given in ([[1, 2], [3, 4, 5]], [[9], [8]], [[1] * 7, [2]], [[2] * 9, [3]]):
        asked = [ask(stage, row) for row in given]
        await stage.serve()
        assert [numbers(request.outputs_told[0]) for request in asked] == [[row] for row in given]
    assert replica.shapes == [(2, 4), (2, 4), (2, 8), (2, 9)]


# ── a budget ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_lengths_are_told_apart_by_less_than_a_quarter() -> None:
    classes = [length_class(length) for length in range(1, 3000)]
    assert sorted(set(classes))[:14] == [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192]
    for length, found in enumerate(classes, start=1):
        assert 0 <= found - length < max(8, length / 4)
    assert classes == sorted(classes)


def grouped(*lengths: int, budget: int | None = 64) -> tuple[Padder, list[InferRequest]]:
    pad = Padder(Padding(1, 0, "mask", target="ids", budget=budget), Signature((IDS, MASK), (IDS, MASK)))
    requests = [request(ids(range(length))) for length in lengths]
    validate = Validator(Signature((IDS, MASK), (IDS, MASK)), mergeable=True, padder=pad)
    for one in requests:
        validate(one)
    return pad, requests


def test_only_about_equal_lengths_share_a_run() -> None:
    _, (one, near, far, longer) = grouped(3, 8, 9, 17)
    assert one.group == near.group
    assert len({near.group, far.group, longer.group}) == 3
    _, requests = grouped(3, 8, 9, 17, budget=None)
    assert len({one.group for one in requests}) == 1


def test_a_run_of_long_ones_has_fewer_rows() -> None:
    pad, (short, long, longest) = grouped(8, 32, 1000)
    limits = Limits(7)
    assert pad.limits(short.group, limits) is limits
    assert pad.limits(long.group, limits).max_rows == 2
    assert pad.limits(longest.group, limits).max_rows == 1
    assert pad.limits("a group of nobody", limits) is limits
    assert pad.limits(short.group, Limits(16)).max_rows == 8


def test_only_the_target_gets_the_value() -> None:
    kinds = TensorSpec("kinds", "INT64", ("N", "L"))
    pad = Padder(Padding(1, 9, "mask", target="ids"), Signature((IDS, kinds), ()))
    short = Tensor("kinds", "INT64", (1, 1), np.array([1], "<i8").tobytes())
    first, _ = filled(pad, request(ids([1]), short), request(ids([1, 2]), Tensor("kinds", "INT64", (1, 2), bytes(16))))
    assert [numbers(tensor) for tensor in first] == [[[1, 9]], [[1, 0]]]


@staged(policy="adaptive", max_rows=64)
async def test_the_batcher_keeps_the_budget(stage: Stage) -> None:
    """Three texts of 32 make two runs where 64 elements may be in one; four short ones share theirs, and none is filled up much."""
    stage.batcher.padder, requests = grouped(32, 5, 32, 6, 7, 32, 8)
    replica = stage.replica()
    asked = [stage.ask_tensors(*one.inputs, group=one.group) for one in requests]
    await stage.serve()
    assert replica.shapes == [(2, 32), (1, 32), (4, 8)]
    assert all(numbers(one.outputs_told[0]) == numbers(one.inputs[0]) for one in asked)
