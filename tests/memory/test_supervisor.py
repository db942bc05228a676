"""The supervisor's sums, promises and turns, without any process: a replica here is a tenant that a test tells to load, to work or to go."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from wakeful.errors import WakefulError
from wakeful.memory import supervisor as module
from wakeful.memory.budget import Memory
from wakeful.memory.supervisor import Standing, Supervisor, Tenant
from wakeful.telemetry.events import Events

PLENTY = 10**9


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Stage:
    """Tenants by name, one replica each."""

    def __init__(self, budget: int, max_loaded: int | None, clock: Clock) -> None:
        self.clock = clock
        self.events = Events()
        self.available = PLENTY
        self.supervisor = Supervisor(budget, max_loaded, lambda: Memory(PLENTY, self.available, "a test"), self.events)
        self.tenants: dict[str, Tenant] = {}
        self.standings: dict[str, Standing] = {}
        self.began: list[str] = []
        self.refused: dict[str, str] = {}
        self.evicted: list[str] = []

    def ask(
        self, name: str, need: int, *, least: int | None = None, primary: bool = True, pinned: bool = False, residency: float = 0.0,
        counts: bool = True,
    ) -> None:
        self.standings[name] = Standing(self.clock.now, idle=False, pinned=pinned, min_residency=residency, loaded=False)

        def refuse(error: WakefulError) -> None:
            self.refused[name] = error.message
            self.supervisor.release(self.tenants[name])

        self.tenants[name] = Tenant(
            name, 0, need, least=need if least is None else least, primary=primary, granted=lambda: self.began.append(name), refused=refuse,
            evict=lambda _: self.evicted.append(name), standing=lambda: self.standings[name],
            counts=counts,
        )
        self.supervisor.admit(self.tenants[name])

    def loaded(self, name: str, *, idle: bool = True) -> None:
        """It is ready, and has been used just now."""
        self.clock.now += 1.0
        self.standings[name] = self.standings[name]._replace(loaded=True, idle=idle, last_used=self.clock.now)
        self.supervisor.loaded_now(self.tenants[name])
        self.supervisor.look()

    def load(self, *names: str, need: int = 1, **more: Any) -> None:
        for name in names:
            self.ask(name, need, **more)
            self.loaded(name)

    def gone(self, name: str) -> None:
        self.supervisor.release(self.tenants[name])


Scene = Callable[[Callable[..., Stage]], None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)

    def run(scene: Scene) -> None:
        async def whole() -> None:
            scene(lambda budget, max_loaded=None: Stage(budget, max_loaded, clock))

        coroutine: Coroutine[Any, Any, None] = whole()
        asyncio.run(coroutine)

    return run


def test_a_newcomer_begins_only_when_its_victim_has_really_gone(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(2)
        s.load("a", "b")
        s.ask("c", 1)
        assert s.evicted == ["a"]
        assert s.began == ["a", "b"]
        assert s.supervisor.resident == 2
        assert s.supervisor.expected == 2  # b and c
        s.gone("a")
        assert s.began == ["a", "b", "c"]
        assert s.supervisor.resident == 2

    play(scene)


def test_newcomers_at_the_same_time_evict_one_each(play: Callable[[Scene], None]) -> None:
    """C30: what the first one's victim still holds is not asked for once more by the second."""

    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(4)
        s.load("a", "b", "c", "d")
        s.ask("e", 1)
        s.ask("f", 1)
        assert s.evicted == ["a", "b"]
        s.gone("b")
        s.gone("a")
        assert sorted(s.began[4:]) == ["e", "f"]

    play(scene)


def test_what_goes_by_itself_makes_room_without_an_eviction_but_only_when_gone(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(2)
        s.load("a", "b")
        s.standings["b"] = s.standings["b"]._replace(going=True, idle=False)
        s.ask("c", 1)
        assert (s.evicted, s.began) == ([], ["a", "b"])
        s.gone("b")
        assert s.began == ["a", "b", "c"]

    play(scene)


@pytest.mark.parametrize("pinned", [False, True])
def test_what_can_never_fit_is_refused_at_once_and_evicts_nobody(play: Callable[[Scene], None], pinned: bool) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(2)
        s.load("a", "b", pinned=pinned)
        s.ask("c", 1 if pinned else 3)
        assert s.evicted == []
        assert ("pinned" if pinned else "budget") in s.refused["c"]
        assert s.supervisor.oldest_load() == 0.0

    play(scene)


def test_a_guess_alone_keeps_nobody_out(play: Callable[[Scene], None]) -> None:
    """Five units are guessed, two are sure, and three can be had beside the pinned one."""

    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(4)
        s.load("pinned", pinned=True)
        s.load("idle")
        s.ask("new", 5, least=2)
        assert s.evicted == ["idle"]
        s.gone("idle")
        assert s.began[-1] == "new"
        assert s.supervisor.resident == 4
        s.ask("larger", 5, least=4)
        assert "larger" in s.refused

    play(scene)


def test_a_further_replica_does_not_wait(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(1)
        s.ask("a", 1)
        s.loaded("a", idle=False)
        s.ask("copy", 1, primary=False)
        assert "a busy" in s.refused["copy"]

    play(scene)


def test_a_busy_model_yields_its_turn_after_a_while_and_not_before_its_minimum(play: Callable[[Scene], None]) -> None:
    """C29."""

    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(1)
        s.ask("a", 1, residency=10.0)
        s.loaded("a", idle=False)
        s.ask("b", 1)
        assert s.supervisor.oldest_load() == 0.0
        for seconds, evicted in ((0.9, []), (5.0, []), (5.0, ["a"])):
            s.clock.now += seconds
            s.supervisor.look()
            assert s.evicted == evicted
        s.gone("a")
        assert s.began == ["a", "b"]

    play(scene)


def test_one_that_is_still_loading_is_never_the_victim(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(1)
        s.ask("a", 1)
        s.ask("b", 1)
        s.clock.now += 60.0
        s.supervisor.look()
        assert s.evicted == []
        s.loaded("a")
        assert s.evicted == ["a"]

    play(scene)


def test_a_small_one_is_loaded_while_a_large_one_waits(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(3)
        s.ask("a", 2)
        s.loaded("a", idle=False)
        s.ask("large", 2)
        s.ask("small", 1)
        assert s.began == ["a", "small"]

    play(scene)


def test_the_ceiling_of_the_daemon_makes_room_by_eviction(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(100, 2)
        s.load("a", "b")
        s.ask("c", 1)
        assert s.evicted == ["a"]
        assert s.supervisor.loaded == 2  # a is about to go
        s.gone("a")
        assert s.began[-1] == "c"
        [event] = s.events.list(kind="evict")
        assert event.figures["reason"] == "capacity"

    play(scene)


def test_memory_that_is_not_really_there_counts_as_missing(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(100)
        s.load("a", need=10)
        s.available = 5
        s.ask("b", 10)
        assert s.evicted == ["a"]
        s.available = 15
        s.gone("a")
        assert s.began == ["a", "b"]

    play(scene)


def test_a_return_right_after_the_eviction_is_counted(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(1)
        s.load("a", residency=5.0)
        s.clock.now += 5.0
        s.ask("b", 1, residency=5.0)
        s.gone("a")
        s.loaded("b")
        s.clock.now += 5.0
        s.ask("a", 1, residency=5.0)
        s.gone("b")
        s.loaded("a")
        assert s.supervisor.thrash.count == 1

    play(scene)


def test_who_has_waited_longest_is_not_overtaken_for_ever(play: Callable[[Scene], None]) -> None:
    """C29: the large one needs two that are old enough at the same time; small ones behind it are let in only where it loses nothing."""

    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(3)
        s.load("a", residency=4.0)
        s.load("b", "c", residency=10.0)
        s.ask("large", 2)
        s.clock.now += 2.0
        s.supervisor.look()
        s.ask("small", 1, residency=100.0)  # a could go for it, and large finds room in place of b and c
        assert s.evicted == ["a"]
        s.gone("a")
        s.loaded("small")
        s.ask("next", 1)
        s.clock.now += 10.0
        s.supervisor.look()
        assert s.evicted == ["a", "b", "c"]
        s.gone("b")
        s.gone("c")
        assert s.began[-2:] == ["small", "large"]

    play(scene)


def test_who_comes_behind_a_claim_stands_back_and_a_copy_is_refused(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(2)
        s.load("old")
        s.load("young", residency=100.0)
        s.ask("large", 2)
        s.clock.now += 2.0
        s.supervisor.look()
        s.ask("small", 1)
        s.ask("copy", 1, primary=False)
        assert s.evicted == []
        assert "large has waited longer" in s.refused["copy"]
        s.supervisor.release(s.tenants["large"])  # nobody asks for it any more
        assert s.evicted == ["old"]

    play(scene)


def test_of_a_turn_the_idle_go_first_and_it_is_told_who_was_busy(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(2)
        s.ask("busy", 1)
        s.loaded("busy", idle=False)
        s.load("idle")
        s.ask("other", 2)
        s.clock.now += 2.0
        s.supervisor.look()
        assert s.evicted == ["idle", "busy"]
        idle, busy = s.events.list(kind="evict")
        assert (idle.figures["busy"], busy.figures["busy"]) == (False, True)
        assert busy.figures["waited_seconds"] == 2.0
        assert busy.figures["loaded_seconds"] == 3.0
        assert "busy#0 (busy)" in busy.text
        assert s.supervisor.oldest_load() == 2.0  # its victims have not gone yet

    play(scene)


def test_looks_take_a_part_of_the_time_only(play: Callable[[Scene], None]) -> None:
    """Where runs end by the thousand while somebody waits, not each of them is a reason to look; what is asked anew is looked at."""

    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(2)
        s.load("a", need=2, residency=1000.0)
        s.ask("b", 2)
        looked = []

        def slow() -> Memory:
            looked.append(s.clock.now)
            s.clock.now += 0.01
            return Memory(PLENTY, PLENTY, "a test")

        s.supervisor._read_memory = slow
        for _ in range(1000):
            s.clock.now += 0.001
            s.supervisor.look()
        assert 5 <= len(looked) <= 15
        s.ask("c", 2, primary=False)
        assert "c" in s.refused

    play(scene)


def test_a_turn_comes_in_time_though_somebody_young_is_there(play: Callable[[Scene], None]) -> None:
    """The next look is not put off until the young one has had its minimum."""

    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(2)
        s.load("old")
        s.standings["old"] = s.standings["old"]._replace(idle=False)
        s.load("young", residency=60.0)
        s.ask("new", 1)
        timer = s.supervisor._timer
        assert timer is not None
        assert timer.when() - s.supervisor._loop.time() <= module.TURN_PATIENCE

    play(scene)


def test_a_promise_is_kept_once_though_another_is_given_back_meanwhile(play: Callable[[Scene], None]) -> None:
    """The first of two finds no descriptors, and lets go of its room while room is being handed out."""

    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(2)
        s.load("a", need=2)
        s.ask("b", 1)
        s.tenants["b"].granted = lambda: s.gone("b")
        s.ask("c", 1)
        s.gone("a")
        assert s.began == ["a", "c"]

    play(scene)


def test_a_tokenizer_takes_no_place_of_a_model(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        it = stage(PLENTY, 1)
        it.load("tokenizer", counts=False)
        it.load("encoder")
        it.ask("another tokenizer", 1, counts=False)
        assert it.began == ["tokenizer", "encoder", "another tokenizer"]
        assert not it.evicted
        it.ask("another", 1)
        assert it.evicted == ["encoder"]
        it.gone("encoder")
        assert it.began[-1] == "another"

    play(scene)


def test_who_turns_out_larger_than_expected_does_not_keep_all_above_the_budget(play: Callable[[Scene], None]) -> None:
    """Models whose size nobody knows load side by side: once they are idle, the least recently used goes, and no more than need be."""

    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(25)
        s.load("a", "b", residency=5.0)
        s.ask("c", 1)
        for name in ("a", "b", "c"):
            s.supervisor.measured(s.tenants[name], 0, 10)
        assert s.evicted == [], "in their first seconds"
        s.loaded("c", idle=False)
        s.clock.now += 5.0
        s.supervisor.look()
        assert s.evicted == ["a"]
        s.gone("a")
        s.clock.now += 5.0
        s.supervisor.look()
        assert s.evicted == ["a"]
        [event] = s.events.list(kind="evict")
        assert event.text.endswith("it is larger than was expected, and all together are 5 B over the budget")

    play(scene)


def test_who_alone_is_larger_than_the_budget_stays_and_costs_nobody_his_place(play: Callable[[Scene], None]) -> None:
    def scene(stage: Callable[..., Stage]) -> None:
        s = stage(25)
        s.load("a", "b")
        s.supervisor.measured(s.tenants["a"], 0, 30)
        s.clock.now += 60.0
        s.supervisor.look()
        assert s.evicted == []

    play(scene)
