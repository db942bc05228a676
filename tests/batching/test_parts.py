"""A request that is too large for one run, cut up and put together again."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.batching.parts import Part, Parted, row_slices
from wakeful.errors import ExecutionFailed, WakefulError
from wakeful.inference import InferRequest
from wakeful.tensors import Tensor, encode_strings


class Collector:
    """Stands where the batcher stands: queues parts, and takes the answer."""

    def __init__(self, inputs: Sequence[Tensor], limit: int) -> None:
        self.origin = InferRequest("m", inputs, arrived=1.0, deadline=9.0, protocol="test")
        self.origin.rows, self.origin.group = inputs[0].shape[0], "g"
        self.queue: list[InferRequest] = []
        self.answers: list[list[Tensor]] = []
        self.seconds = 0.0
        self.errors: list[WakefulError] = []
        self.whole = Parted(self.origin, limit, self.queue.append, self._answer, lambda _, error: self.errors.append(error))
        self.whole.submit_next()

    def _answer(self, request: InferRequest, outputs: list[Tensor], seconds: float) -> None:
        assert request is self.origin
        self.answers.append(outputs)
        self.seconds = seconds

    def take(self) -> InferRequest:
        part = self.queue.pop(0)
        assert isinstance(part, Part)
        part.whole.submit_next()
        return part


def texts(*rows: bytes) -> Tensor:
    return Tensor("t", "BYTES", (len(rows),), encode_strings(rows))


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=20), st.integers(1, 7), st.randoms(use_true_random=False))
def test_parts_come_back_in_order_whatever_order_they_end_in(rows: list[bytes], limit: int, random: object) -> None:
    numbers = np.arange(2 * len(rows), dtype="<i2")
    collector = Collector([texts(*rows), Tensor("n", "INT16", (len(rows), 2), numbers.tobytes())], limit)
    taken = []
    while collector.queue:
        taken.append(collector.take())
    assert [part.rows for part in taken] == [min(limit, len(rows) - start) for start in range(0, len(rows), limit)]
    random.shuffle(taken)  # type: ignore[attr-defined] # hypothesis' generator
    for part in taken:
        part.answer(part.inputs, 0.5)
    (answer,) = collector.answers
    assert answer == list(collector.origin.inputs)
    assert collector.seconds == 0.5 * len(taken)


def test_the_next_part_is_queued_when_the_one_before_is_taken() -> None:
    collector = Collector([texts(b"a", b"b", b"c")], 1)
    assert len(collector.queue) == 1
    collector.take()
    assert len(collector.queue) == 1


def test_parts_are_the_callers_in_everything_that_counts() -> None:
    collector = Collector([texts(b"a", b"b")], 1)
    part = collector.take()
    assert (part.arrived, part.deadline, part.group, part.protocol) == (1.0, 9.0, "g", "")
    assert isinstance(part, Part)
    assert part.origin is collector.origin
    assert not part.left
    collector.origin.left = True
    assert part.left


def test_nothing_more_is_queued_for_a_caller_that_has_gone_or_been_refused() -> None:
    for gone in ("left", "settled"):
        collector = Collector([texts(b"a", b"b")], 1)
        setattr(collector.origin, gone, True)
        collector.take()
        assert collector.queue == []


def test_a_refused_part_refuses_the_whole() -> None:
    collector = Collector([texts(b"a", b"b")], 1)
    error = ExecutionFailed("no")
    collector.take().refuse(error)
    assert collector.errors == [error]


@pytest.mark.parametrize("shapes", [((1,), (1,)), ((2,), (1, 3)), ((), (1,)), ((3,), (1,)), ((2, 2), (1, 3))])
def test_a_model_whose_answers_are_not_by_rows_gets_the_whole(shapes: tuple[tuple[int, ...], ...]) -> None:
    """C02: joined, they would be too few or too many rows, or rows that are not equally long."""
    collector = Collector([texts(b"a", b"b", b"c")], 2)
    parts = [collector.take(), collector.take()]
    for part, shape in zip(parts, shapes, strict=True):
        part.answer([Tensor("y", "UINT8", shape, bytes(math.prod(shape)))], 0.1)
    assert collector.answers == []
    assert collector.queue == [collector.origin]
    assert collector.origin.group is None
    parts[1].refuse(ExecutionFailed("what becomes of a part does not matter any more"))
    collector.whole.submit_next()
    assert collector.errors == []
    assert collector.queue == [collector.origin]


def test_slices_are_views() -> None:
    tensor = Tensor("n", "INT16", (3, 2), bytearray(range(12)))
    first, second = row_slices(tensor, [1, 2])
    assert (first.shape, second.shape) == ((1, 2), (2, 2))
    assert isinstance(second.data, memoryview)
    assert bytes(second.data) == bytes(range(4, 12))


def test_texts_without_elements_in_a_row_are_sliced() -> None:
    empty = Tensor("t", "BYTES", (3, 0), b"")
    assert [piece.shape for piece in row_slices(empty, [1, 2])] == [(1, 0), (2, 0)]
