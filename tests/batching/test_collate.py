"""Joining inputs in a slot and cutting outputs out of it, byte by byte."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.batching import collate
from wakeful.errors import ExecutionFailed, InvalidInput
from wakeful.inference import InferRequest
from wakeful.runtime.arena import ALIGN, Slot
from wakeful.runtime.messages import Placement
from wakeful.tensors import Tensor, decode_strings, encode_strings

ROWS = st.lists(st.integers(1, 5), min_size=1, max_size=6)


def tensor(rows: int, width: int, first: int = 0, name: str = "x") -> Tensor:
    array = np.arange(first, first + rows * width, dtype="<i4")
    return Tensor(name, "INT32", (rows, width), array.tobytes())


def joined(batch: Sequence[Sequence[Tensor]], rows: int) -> tuple[list[Tensor], int]:
    """What lies in a slot after collating, and the first free byte."""
    slot = Slot.create()
    try:
        placements, end = collate.collate(batch, rows, slot)
        view = slot.reach(end)
        return [Tensor(p.name, p.datatype, p.shape, bytes(view[p.offset : p.offset + p.nbytes])) for p in placements], end
    finally:
        slot.close()


@given(ROWS)
def test_what_is_joined_is_cut_into_the_same_pieces(counts: list[int]) -> None:
    members = [[tensor(rows, 3, first=100 * k), tensor(rows, 1, first=7 * k, name="z")] for k, rows in enumerate(counts)]
    inputs, end = joined(members, sum(counts))
    assert end % ALIGN == 0
    data = b"".join(bytes(one.data) for one in inputs)
    second = len(inputs[0].data)
    placements = [
        Placement("x", "INT32", (sum(counts), 3), 0, second),
        Placement("z", "INT32", (sum(counts), 1), second, len(inputs[1].data)),
    ]
    assert collate.cut(placements, counts, memoryview(data)) == members


@given(st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=4), min_size=1, max_size=5))
def test_texts_too(members: list[list[bytes]]) -> None:
    counts = [len(rows) for rows in members]
    batch = [[Tensor("x", "BYTES", (len(rows), 1), encode_strings(rows))] for rows in members]
    (whole,), _ = joined(batch, sum(counts))
    assert decode_strings(whole.data, sum(counts)) == [row for rows in members for row in rows]
    data = b"..." + bytes(whole.data)
    assert collate.cut([Placement("x", "BYTES", (sum(counts), 1), 3, len(data) - 3)], counts, memoryview(data)) == batch


def test_large_inputs_are_copied_one_by_one_and_the_slot_grows() -> None:
    big = [[tensor(100, 1000, first=k)] for k in range(3)]
    (whole,), end = joined(big, 300)
    assert whole.shape == (300, 1000)
    assert end >= 300 * 4000
    assert whole.data == b"".join(bytes(inputs[0].data) for inputs in big)


def test_a_lone_request_keeps_its_shape() -> None:
    scalar = Tensor("x", "INT32", (), bytes(4))
    (whole,), _ = joined([[scalar]], 1)
    assert whole == scalar


@pytest.mark.parametrize("shape", [(), (2,), (4, 1), (0,)])
def test_an_output_without_the_rows_of_the_batch_is_not_cut(shape: tuple[int, ...]) -> None:
    """C01, C02."""
    with pytest.raises(ExecutionFailed, match=r"output y has shape .* for a batch of 3 rows"):
        collate.cut([Placement("y", "INT32", shape, 0, 4)], [1, 2], memoryview(bytes(64)))


def test_rows_without_elements_are_cut_too() -> None:
    for datatype in ("INT32", "BYTES"):
        answers = collate.cut([Placement("y", datatype, (3, 0), 0, 0)], [1, 2], memoryview(b""))
        assert [answer[0].shape for answer in answers] == [(1, 0), (2, 0)]


def test_wanted_outputs_come_in_the_wanted_order() -> None:
    outputs = [tensor(1, 1, name=name) for name in "abc"]
    request = InferRequest("m", (), arrived=0.0, outputs=["c", "a"])
    assert [one.name for one in collate.wanted(request, outputs)] == ["c", "a"]
    assert collate.wanted(InferRequest("m", (), arrived=0.0), outputs) is outputs


def test_a_wanted_output_that_there_is_not_is_the_callers_fault() -> None:
    request = InferRequest("m", (), arrived=0.0, outputs=["b", "z"])
    with pytest.raises(InvalidInput, match=r"outputs: expected names among \['b'\], got 'z'"):
        collate.wanted(request, [tensor(1, 1, name="b")])
