import os

import pytest

from wakeful.runtime.arena import FIRST_SIZE, GROWTH, KEEP, Slot, aligned


def other_side(slot: Slot) -> Slot:
    """What the other process has: its own mapping of the same memfd."""
    return Slot(os.dup(slot.fd))


def test_both_sides_see_the_same_bytes() -> None:
    ours = Slot.create()
    theirs = other_side(ours)
    ours.reach(5)[:5] = b"hello"
    assert bytes(theirs.reach(5)[:5]) == b"hello"
    theirs.reach(5)[:5] = b"world"
    assert bytes(ours.reach(5)[:5]) == b"world"


def test_either_side_may_make_it_longer() -> None:
    ours = Slot.create()
    theirs = other_side(ours)
    assert ours.size == FIRST_SIZE
    end = FIRST_SIZE + 3
    theirs.reach(end)[end - 3 : end] = b"end"
    assert bytes(ours.reach(end)[end - 3 : end]) == b"end"
    assert ours.size % GROWTH == 0
    longer = 3 * ours.size
    ours.reach(longer)[longer - 1] = 7
    assert theirs.reach(longer)[longer - 1] == 7
    assert ours.size == theirs.size


def test_what_was_handed_out_stays_valid_when_the_slot_grows() -> None:
    slot = Slot.create()
    before = slot.reach(4)
    before[:4] = b"keep"
    slot.reach(10 * FIRST_SIZE)
    assert bytes(before[:4]) == b"keep"
    assert bytes(slot.view[:4]) == b"keep"


def test_nobody_can_take_pages_away_under_the_others_feet() -> None:
    slot = Slot.create()
    with pytest.raises(PermissionError):
        os.ftruncate(slot.fd, FIRST_SIZE - 1)


def test_a_small_slot_is_not_trimmed_and_a_large_one_gives_its_pages_back() -> None:
    slot = Slot.create()
    slot.reach(4)[:4] = b"keep"
    slot.trim()
    assert bytes(slot.view[:4]) == b"keep"
    view = slot.reach(2 * KEEP)
    view[: 2 * KEEP] = b"x" * (2 * KEEP)
    del view
    full = os.fstat(slot.fd).st_blocks
    slot.trim()
    assert os.fstat(slot.fd).st_blocks == 0 < full
    assert slot.reach(2 * KEEP)[0] == 0


def test_pages_that_were_never_touched_cost_nothing() -> None:
    slot = Slot.create()
    slot.reach(512 * 1024 * 1024)
    assert os.fstat(slot.fd).st_blocks == 0


def test_the_mark_is_seen_by_the_other_side_and_outlives_it() -> None:
    ours = Slot.create()
    assert ours.marked == 0
    theirs = other_side(ours)
    theirs.mark(2**40)
    theirs.close()
    assert ours.marked == 2**40


def test_the_descriptor_is_not_inherited_by_programs_that_are_started() -> None:
    assert not os.get_inheritable(Slot.create().fd)


@pytest.mark.parametrize(("offset", "expected"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_alignment(offset: int, expected: int) -> None:
    assert aligned(offset) == expected
