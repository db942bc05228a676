"""Who is held, until when, and what becomes of them."""

import pytest

from wakeful.cluster.gateway.hold import ASK_AGAIN, MOST_BYTES, UNHEARD, Ask, Effect, Held, Leave, Refuse, Room, Send
from wakeful.cluster.wire import WakeTold
from wakeful.errors import NotFound, Overloaded, Unavailable, WakefulError

NOW = 1000.0
WAKING = WakeTold("waking", hold=60.0)


def refused(effects: list[Effect]) -> dict[int, WakefulError]:
    return {effect.ticket: effect.error for effect in effects if isinstance(effect, Refuse)}


def holding(*tickets: int) -> Held:
    held = Held()
    for ticket in tickets:
        held.arrive(ticket, "m", NOW)
    return held


def test_one_wake_however_many_wait() -> None:
    held = Held()
    assert held.arrive(1, "m", NOW) == [Ask("m")]
    assert held.arrive(2, "m", NOW) == []
    assert held.arrive(3, "other", NOW) == [Ask("other")]
    assert held.told("m", WAKING, NOW) == []
    assert held.told("m", WakeTold("routed"), NOW) == [Send(1), Send(2)]
    assert len(held) == 1
    assert held.arrive(4, "m", NOW) == [Ask("m")]


def test_each_waits_as_long_as_the_model_says_from_its_own_arrival() -> None:
    held = holding(1)
    held.told("m", WAKING, NOW + 1)
    held.arrive(2, "m", NOW + 30)
    assert held.next_deadline() == NOW + 60
    assert held.tick(NOW + 59.9) == []
    late = held.tick(NOW + 60)
    assert isinstance(refused(late)[1], Unavailable)
    assert refused(late)[1].message == "model m is waking, and has not woken within 60 s; it goes on"
    assert refused(late)[1].retry_after == 5
    assert held.next_deadline() == NOW + 90
    assert held.tick(NOW + 90)[-1] == Leave("m")
    assert held.next_deadline() is None


def test_who_has_waited_long_enough_hears_why_the_model_has_no_place() -> None:
    held = holding(1)
    held.told("m", WAKING, NOW)
    held.told("m", WakeTold("waking", "1 replica of 1 without a place: triton: memory on 1 of 1 replica"), NOW + 1)
    [refusal] = refused(held.tick(NOW + 60)).values()
    assert refusal.message == (
        "model m is waking, and has not woken within 60 s; it goes on. 1 replica of 1 without a place: triton: memory on 1 of 1 replica"
    )
    held.arrive(2, "m", NOW + 70)
    held.told("m", WAKING, NOW + 71)
    [refusal] = refused(held.tick(NOW + 130)).values()
    assert refusal.message.endswith("it goes on"), "it has a place by now"


def test_a_model_that_holds_nobody_wakes_all_the_same() -> None:
    held = holding(1)
    effects = held.told("m", WakeTold("waking", hold=0.0), NOW)
    assert isinstance(refused(effects)[1], Unavailable)


def test_a_controller_that_is_silent_is_not_waited_for_long() -> None:
    held = holding(1)
    assert held.broken("m", "UNAVAILABLE: connection refused") == [Ask("m", ASK_AGAIN)]
    assert held.tick(NOW + UNHEARD - 0.1) == []
    [refusal] = refused(held.tick(NOW + UNHEARD)).values()
    assert "the controller does not say why: UNAVAILABLE: connection refused" in refusal.message


def test_a_leader_that_goes_in_the_middle_is_followed_by_the_next() -> None:
    held = holding(1)
    held.told("m", WAKING, NOW)
    assert held.broken("m", "CANCELLED") == [Ask("m", ASK_AGAIN)]
    assert held.tick(NOW + UNHEARD) == []
    assert held.told("m", WakeTold("routed"), NOW + 20) == [Send(1)]


@pytest.mark.parametrize(("told", "kind", "text"), [
    (WakeTold("unknown", near=["cat", "cats"]), NotFound, "no model is called 'm'; did you mean cat, cats?"),
    (WakeTold("unknown", "there is no model m", ["cat"]), NotFound, "there is no model m; did you mean cat?"),
    (WakeTold("unknown"), NotFound, "no model is called 'm'"),
    (WakeTold("off"), Unavailable, "model m is switched off: it has 0 replicas and no bounds"),
    (WakeTold("failed", "r2 failed on triton-0: bad file"), Unavailable, "r2 failed on triton-0: bad file"),
])
def test_answers_that_are_final(told: WakeTold, kind: type[WakefulError], text: str) -> None:
    held = holding(1, 2)
    answers = refused(held.told("m", told, NOW))
    assert answers.keys() == {1, 2}
    assert {type(error) for error in answers.values()} == {kind}
    assert {error.message for error in answers.values()} == {text}
    assert len(held) == 0


def test_who_leaves_is_forgotten_and_the_last_one_ends_the_call() -> None:
    held = holding(1, 2)
    assert held.leave(1, "m") == []
    assert held.leave(1, "m") == []
    assert held.leave(2, "m") == [Leave("m")]
    assert len(held) == 0
    assert held.told("m", WakeTold("routed"), NOW) == []
    assert held.broken("m", "late") == []


def test_no_more_are_held_than_there_is_room_for() -> None:
    held = Held(most=2)
    held.arrive(1, "m", NOW)
    held.arrive(2, "m", NOW)
    [refusal] = held.arrive(3, "n", NOW)
    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, Overloaded)
    held.leave(1, "m")
    assert held.arrive(4, "n", NOW) == [Ask("n")]


def test_bytes_of_bodies_that_had_to_be_read_are_limited() -> None:
    room = Room()
    room.take(MOST_BYTES)
    with pytest.raises(Overloaded, match="256 MiB"):
        room.take(1)
    room.give(MOST_BYTES)
    room.take(1)
    assert room.taken == 1
