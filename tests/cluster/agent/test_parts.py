"""The agent's pure parts: what is wanted, what was told, who is ill, who is quiet, when a drain is over."""

from pathlib import Path

from wakeful.cluster.agent import memory
from wakeful.cluster.agent.cache import Use
from wakeful.cluster.agent.drain import verdict
from wakeful.cluster.agent.health import Deaths, Quiet
from wakeful.cluster.agent.link import LONGEST_PAUSE, SHORTEST_PAUSE, pause
from wakeful.cluster.agent.memory import Proven
from wakeful.cluster.agent.orders import Heard, Orders
from wakeful.cluster.agent.shelf import Place, Served
from wakeful.cluster.agent.told import Told
from wakeful.cluster.wire import PROTOCOL, Adopt, Desired, HeldNow, Report, UseNow, Wanted

A, B, C = (Wanted(revision, "file:///m") for revision in "abc")


def test_changes_are_of_what_was_heard_before() -> None:
    orders = Orders()
    assert not orders.known
    assert orders.adopt(Adopt(3, PROTOCOL)) == ""
    assert orders.hear(Desired(3, 1, 0, {"a": A, "b": B})) is Heard.OBEYED
    assert orders.hear(Desired(3, 2, 1, {"c": C}, ["a"])) is Heard.OBEYED
    assert orders.models == {"b": B, "c": C}
    assert orders.hear(Desired(3, 9, 8, {"a": A})) is Heard.MISSED
    assert orders.models == {"b": B, "c": C}
    assert orders.hear(Desired(3, 3, 2, {"a": A})) is Heard.MISSED, "until everything is said anew"
    assert orders.hear(Desired(3, 4, 0, {"a": A})) is Heard.OBEYED
    assert orders.models == {"a": A}


def test_epochs_never_fall() -> None:
    orders = Orders({"a": A}, 5)
    assert orders.known
    assert "5 was obeyed" in orders.adopt(Adopt(4, PROTOCOL))
    assert orders.adopt(Adopt(7, PROTOCOL)) == ""
    assert orders.hear(Desired(6, 1, 0, {})) is Heard.OUTDATED
    assert (orders.models, orders.epoch) == ({"a": A}, 7)
    assert "version" in orders.adopt(Adopt(8, PROTOCOL + 2))
    assert orders.epoch == 7
    assert orders.adopt(Adopt(8, PROTOCOL + 1)) == ""


def test_a_version_is_of_one_stream() -> None:
    orders = Orders()
    orders.adopt(Adopt(1, PROTOCOL))
    orders.hear(Desired(1, 1, 0, {"a": A}))
    orders.adopt(Adopt(1, PROTOCOL))
    assert orders.hear(Desired(1, 2, 1, {"b": B})) is Heard.MISSED


def test_what_is_remembered_has_no_secrets(tmp_path: Path) -> None:
    assert memory.recall(tmp_path / "state") is None
    wanted = Wanted("r", "s3://b/m", secret={"key": "hush"}, serving={"pinned": True})
    memory.remember(tmp_path / "state", 4, {"a": wanted}, {"a": Proven("r", "sha256:1")})
    remembered = memory.recall(tmp_path / "state")
    assert remembered is not None
    assert (remembered.epoch, remembered.proven) == (4, {"a": Proven("r", "sha256:1")})
    assert remembered.models == {"a": Wanted("r", "s3://b/m", serving={"pinned": True})}
    (tmp_path / "state" / memory.FILE).write_bytes(b"\x93half")
    assert memory.recall(tmp_path / "state") is None


def test_only_what_has_changed_is_told() -> None:
    held, used = {"a": HeldNow("ready", "r", 1000)}, {"a": UseNow(5, 5)}
    told = Told(held, used)
    assert told.news(held, used) is None
    assert told.news({"a": HeldNow("ready", "r", 1040)}, used) is None, "a process grows by pages"
    assert told.news({"a": HeldNow("ready", "r", 1100)}, used) == Report({"a": HeldNow("ready", "r", 1100)})
    assert told.news({"a": HeldNow("failed", "r", 1100, "why")}, {"a": UseNow(6, 5)}) == Report(
        {"a": HeldNow("failed", "r", 1100, "why")}, [], {"a": UseNow(6, 5)})
    assert told.news({}, {"a": UseNow(7, 6)}) is None, "it is not looked at"
    assert told.news({"a": None}, {"a": UseNow(7, 6)}) == Report({}, ["a"])
    assert told.news({"a": None}, {}) is None
    assert told.news(held, {}) == Report(held)


def test_that_an_order_was_heard_is_told_even_if_nothing_has_changed() -> None:
    orders, told = Orders(), Told({}, {})
    orders.adopt(Adopt(1, PROTOCOL))
    assert orders.seen == 0
    orders.hear(Desired(1, 7, 0, {"a": A}))
    assert told.news({}, {}, orders.seen) == Report(seen=7)
    assert told.news({}, {}, orders.seen) is None
    assert told.news({"a": HeldNow("ready", "r")}, {}, 7) == Report({"a": HeldNow("ready", "r")})
    orders.adopt(Adopt(2, PROTOCOL))
    assert orders.seen == 0, "a version is of one stream"


def test_a_copy_that_is_put_away_is_not_said_to_be_ready(tmp_path: Path) -> None:
    place, wanted = Place(), Wanted("r", "s3://b/m")
    place.wanted, place.served = wanted, Served("r", Use(tmp_path, "sha256:1", 5, -1))
    assert place.held(9, 0, asleep=False) == HeldNow("ready", "r", 9, "", "sha256:1", 5)
    place.wanted = None
    assert place.held(9, 0, asleep=False) == HeldNow("finishing", "r", 9, "", "sha256:1", 5)
    place.going, place.loading, place.wanted = True, True, wanted
    assert place.held(9, 3, asleep=False) == HeldNow("loading", "r", 9, progress=3), "it is wanted again, and loads anew once the one before has gone"


def test_a_load_gets_on_for_as_long_as_the_daemon_gives_it_and_then_stands_still() -> None:
    place = Place()
    place.fetched = 1000
    assert place.progress(50.0) == place.progress(60.0) == 1000, "the daemon has not begun"
    place.opened, place.longest = 100.0, 1800.0
    assert [place.progress(100.0 + waited) for waited in (0, 400, 1799)] == [1000, 1400, 2799]
    assert place.progress(1900.0) == place.progress(9999.0) == 2800


def test_three_deaths_in_a_minute_are_an_illness() -> None:
    deaths = Deaths()
    for time in (0.0, 40.0, 80.0):
        deaths.add("m", time, "killed by signal 11")
        assert deaths.verdict("m", time) == ""
    deaths.add("m", 90.0, "killed by signal 6")
    assert "3 times in 50 s" in deaths.verdict("m", 90.0)
    assert "signal 6" in deaths.verdict("m", 95.0)
    assert deaths.verdict("m", 101.0) == ""
    deaths.forget("m")
    assert deaths.verdict("m", 90.0) == ""


def test_quiet_is_a_second_without_a_request_and_at_last_half_a_minute() -> None:
    quiet = Quiet(100.0)
    assert not quiet.look(5, 0, 100.0)
    assert not quiet.look(5, 0, 100.9)
    assert not quiet.look(6, 0, 101.0), "one came and went"
    assert not quiet.look(6, 0, 101.9)
    assert quiet.look(6, 0, 102.0)
    busy = Quiet(100.0)
    assert not busy.look(6, 1, 129.9)
    assert busy.look(6, 1, 130.0)


def test_when_a_drain_is_over() -> None:
    assert verdict(0.0, 120.0, led=True, released=True).startswith("released")
    assert verdict(59.0, 120.0, led=False, released=False) == ""
    assert "no controller leads" in verdict(60.0, 120.0, led=False, released=False)
    assert verdict(109.0, 120.0, led=True, released=False) == ""
    assert "the time is up" in verdict(110.0, 120.0, led=True, released=False)
    assert "the time is up" in verdict(5.0, 10.0, led=True, released=False), "a short grace is halved"


def test_pauses_grow_and_are_never_the_same_for_all() -> None:
    assert pause(0, 1.0) == SHORTEST_PAUSE
    assert pause(0, 0.0) == SHORTEST_PAUSE / 2
    assert pause(1, 1.0) == 2 * SHORTEST_PAUSE
    assert pause(1000, 1.0) == LONGEST_PAUSE
