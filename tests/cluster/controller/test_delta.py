"""The incremental protocol, message by message."""

from typing import Any

from wakeful.cluster.controller.delta import Client, Kind, Push, Resource


class Stage:
    """A client, and what it is sent."""

    def __init__(self, *names: str) -> None:
        self.catalog: dict[Kind, dict[str, Resource]] = {"clusters": {}, "endpoints": {}}
        self.client = Client(self.catalog)
        self.put(*names)

    def put(self, *names: str, version: str = "1") -> None:
        for name in names:
            self.catalog["clusters"][name] = Resource("c", b"")
            self.catalog["endpoints"][name] = Resource(version, b"")
        self.client.changed(names)

    def drop(self, name: str) -> None:
        del self.catalog["clusters"][name], self.catalog["endpoints"][name]
        self.client.changed([name])

    def ask(self, kind: Kind, *names: str, has: dict[str, str] | None = None, leave: tuple[str, ...] = ()) -> bool:
        return self.client.asked(kind, names, leave, has or {})

    def pushes(self) -> list[Push]:
        return list(self.client.pushes())

    def settle(self) -> list[tuple[Kind, list[str], list[str]]]:
        """Acknowledge until nothing comes any more: kinds, names and removed names."""
        seen = []
        while pushes := self.pushes():
            for push in pushes:
                seen.append((push.kind, sorted(push.resources), push.removed))
                self.client.answered(push.nonce, refused=False)
        return seen


def running(*names: str) -> Stage:
    stage = Stage(*names)
    stage.ask("clusters")
    stage.settle()
    stage.ask("endpoints", *names)
    stage.settle()
    return stage


def test_a_fresh_client_has_all_clusters_and_then_their_endpoints() -> None:
    stage = Stage("a", "b")
    assert stage.pushes() == []
    assert stage.ask("clusters")
    assert stage.settle() == [("clusters", ["a", "b"], [])]
    stage.ask("endpoints", "a", "b")
    assert stage.settle() == [("endpoints", ["a", "b"], [])]


def test_the_first_answer_comes_even_if_there_is_nothing() -> None:
    stage = Stage()
    stage.ask("clusters")
    assert stage.settle() == [("clusters", [], [])]


def test_one_that_comes_back_has_only_what_is_different() -> None:
    stage = Stage("same", "other", "new")
    assert not stage.ask("clusters", has={"same": "c", "other": "c", "gone": "c"})
    assert stage.ask("endpoints", "same", "other", "gone", has={"same": "1", "other": "0", "gone": "1"})
    assert stage.settle() == [("clusters", ["new"], ["gone"]), ("endpoints", ["other"], [])]


def test_one_that_comes_back_with_all_has_nothing() -> None:
    stage = Stage("a")
    stage.ask("clusters", has={"a": "c"})
    stage.ask("endpoints", "a", has={"a": "1"})
    assert stage.settle() == [("clusters", [], [])]


def test_changes_go_together_while_a_push_is_under_way() -> None:
    stage = running("a", "b")
    stage.put("a", version="2")
    [first] = stage.pushes()
    stage.put("a", "b", version="3")
    assert stage.pushes() == []
    stage.client.answered(first.nonce, refused=False)
    assert stage.settle() == [("endpoints", ["a", "b"], [])]


def test_endpoints_count_when_their_cluster_is_acknowledged_too() -> None:
    """Envoy acknowledges a cluster after it has its endpoints."""
    stage = Stage("a")
    stage.ask("clusters")
    [clusters] = stage.pushes()
    stage.ask("endpoints", "a")
    [endpoints] = stage.pushes()
    stage.client.answered(endpoints.nonce, refused=False)
    assert stage.client.endpoints("a") is None
    stage.client.answered(clusters.nonce, refused=False)
    assert stage.client.endpoints("a") == "1"


def test_a_removed_cluster_takes_its_endpoints_with_it() -> None:
    stage = running("a")
    stage.drop("a")
    assert stage.settle() == [("clusters", [], ["a"])]


def test_a_cluster_that_comes_again_brings_its_endpoints_when_they_are_asked_for_anew() -> None:
    stage = running("a")
    stage.drop("a")
    [removal] = stage.pushes()
    stage.put("a")
    assert stage.pushes() == []
    stage.client.answered(removal.nonce, refused=False)
    [again] = stage.pushes()
    assert (again.kind, list(again.resources)) == ("clusters", ["a"])
    assert stage.client.endpoints("a") is None
    stage.ask("endpoints", "a")
    assert [push.kind for push in stage.pushes()] == ["endpoints"]


def test_who_asks_anew_during_a_push_is_sent_it_again() -> None:
    stage = running("a")
    stage.put("a", version="2")
    [push] = stage.pushes()
    stage.ask("endpoints", "a")
    stage.client.answered(push.nonce, refused=False)
    assert stage.settle() == [("endpoints", ["a"], [])]


def test_what_nobody_asks_for_any_more_is_not_sent() -> None:
    stage = running("a", "b")
    stage.ask("endpoints", leave=("a",))
    stage.put("a", "b", version="2")
    assert stage.settle() == [("endpoints", ["b"], [])]


def test_what_was_refused_is_sent_again_when_it_is_time() -> None:
    stage = running("a")
    stage.put("a", version="2")
    [push] = stage.pushes()
    assert stage.client.answered(push.nonce, refused=True) == push
    assert stage.pushes() == []
    stage.client.again(push)
    assert stage.settle() == [("endpoints", ["a"], [])]


def test_a_removal_that_was_refused_is_sent_again() -> None:
    stage = running("a")
    stage.drop("a")
    [push] = stage.pushes()
    stage.client.answered(push.nonce, refused=True)
    stage.client.again(push)
    assert stage.settle() == [("clusters", [], ["a"])]


def test_an_answer_to_nothing_is_nothing() -> None:
    stage: Any = running("a")
    assert stage.client.answered("99", refused=False) is None
