"""Where gateways may send requests, by what they have acknowledged."""

from wakeful.cluster.planning.book import PATIENCE, Book, clusters, grpc_cluster, http_cluster, model_of
from wakeful.cluster.planning.world import Endpoint, Routing

NOW = 1000.0
A, AB, B, NOBODY = frozenset("a"), frozenset("ab"), frozenset("b"), frozenset[str]()
CLUSTER = http_cluster("m")


def endpoints(*uids: str, grpc: int | None = None) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(uid, "127.0.0.1", 8000, grpc) for uid in uids)


def want(book: Book, *uids: str, grpc: int | None = None) -> frozenset[str]:
    return book.set_routes("m", clusters("m", endpoints(*uids, grpc=grpc)))


def settle(book: Book, gateway: str, uids: frozenset[str], cluster: str = CLUSTER) -> None:
    book.sent(gateway, "1", {cluster: uids}, NOW)
    book.accepted(gateway, "1", {cluster: uids}, NOW)


def test_names_of_clusters() -> None:
    assert clusters("m", endpoints("a")) == {"model/m": endpoints("a")}
    assert clusters("m", (*endpoints("a"), *endpoints("b", grpc=1))) == {
        "model/m": (*endpoints("a"), *endpoints("b", grpc=1)), "model/m/grpc": endpoints("b", grpc=1),
    }
    assert clusters("m", ()) == {}
    assert model_of(http_cluster("m")) == model_of(grpc_cluster("m")) == "m"


def test_without_a_gateway_what_is_routed_is_routed() -> None:
    book = Book()
    assert want(book, "a") == {"m"}
    assert book.routing == {"m": Routing(A, NOBODY)}
    assert want(book) == {"m"}
    assert book.routing == {}


def test_a_push_counts_when_it_is_acknowledged() -> None:
    book = Book()
    want(book, "a")
    assert book.joined("g", {}, NOW) == {"m"}
    assert book.routing == {}
    assert book.sent("g", "1", {CLUSTER: A}, NOW) == {"m"}
    assert book.routing == {"m": Routing(NOBODY, A)}
    assert book.accepted("g", "1", {CLUSTER: A}, NOW) == {"m"}
    assert book.routing == {"m": Routing(A, A)}


def test_a_replica_is_used_until_its_removal_is_acknowledged() -> None:
    book = Book()
    want(book, "a", "b")
    book.joined("g", {CLUSTER: AB}, NOW)
    assert book.routing == {"m": Routing(AB, AB)}
    want(book, "b")
    assert book.routing == {"m": Routing(B, AB)}
    book.sent("g", "1", {CLUSTER: B}, NOW)
    assert book.routing == {"m": Routing(B, AB)}
    book.accepted("g", "1", {CLUSTER: B}, NOW)
    assert book.routing == {"m": Routing(B, B)}


def test_removal_of_the_cluster_is_removal_of_all() -> None:
    book = Book()
    want(book, "a")
    book.joined("g", {CLUSTER: A}, NOW)
    want(book)
    book.sent("g", "1", {CLUSTER: NOBODY}, NOW)
    assert book.routing == {"m": Routing(NOBODY, A)}
    book.accepted("g", "1", {CLUSTER: NOBODY}, NOW)
    assert book.routing == {}


def test_all_gateways_are_waited_for() -> None:
    book = Book()
    want(book, "a", "b")
    book.joined("g", {CLUSTER: AB}, NOW)
    book.joined("h", {CLUSTER: A}, NOW)
    assert book.routing == {"m": Routing(A, AB)}
    settle(book, "h", AB)
    assert book.routing == {"m": Routing(AB, AB)}


def test_a_replica_with_grpc_is_routed_when_both_of_its_clusters_are() -> None:
    book = Book()
    want(book, "a", grpc=1)
    book.joined("g", {}, NOW)
    settle(book, "g", A)
    assert book.routing == {"m": Routing(NOBODY, A)}
    settle(book, "g", A, grpc_cluster("m"))
    assert book.routing == {"m": Routing(A, A)}


def test_one_that_answers_no_more_is_not_waited_for() -> None:
    book = Book()
    want(book, "b")
    book.joined("g", {CLUSTER: AB}, NOW)
    book.sent("g", "1", {CLUSTER: B}, NOW)
    assert book.tick(NOW + PATIENCE - 0.1) == NOBODY
    assert book.routing["m"].anywhere == AB
    assert book.tick(NOW + PATIENCE) == {"m"}
    assert book.routing["m"] == Routing(B, NOBODY)
    assert book.gateways == NOBODY
    book.accepted("g", "1", {CLUSTER: B}, NOW + PATIENCE + 1)
    assert book.gateways == {"g"}
    assert book.routing["m"] == Routing(B, B)


def test_one_that_is_quiet_because_it_owes_nothing_is_waited_for() -> None:
    book = Book()
    book.joined("g", {CLUSTER: A}, NOW)
    assert book.tick(NOW + 10 * PATIENCE) == NOBODY
    assert book.routing["m"].anywhere == A


def test_one_that_has_left_goes_on_sending_for_a_while() -> None:
    book = Book()
    want(book, "a")
    book.joined("g", {CLUSTER: A}, NOW)
    want(book)
    book.left("g", NOW)
    assert book.routing["m"] == Routing(NOBODY, A)
    assert book.tick(NOW + PATIENCE) == {"m"}
    assert book.routing == {}


def test_one_that_comes_back_is_what_it_says() -> None:
    book = Book()
    want(book, "b")
    book.joined("g", {CLUSTER: A}, NOW)
    book.left("g", NOW)
    book.joined("g", {CLUSTER: B}, NOW + 1)
    assert book.routing["m"] == Routing(B, B)
    book.tick(NOW + 10 * PATIENCE)
    assert book.gateways == {"g"}


def test_a_refusal_is_no_acknowledgement_however_long_ago() -> None:
    book = Book()
    want(book, "b")
    book.joined("g", {CLUSTER: A}, NOW)
    book.sent("g", "1", {CLUSTER: B}, NOW)
    book.refused("g", "1", NOW)
    book.tick(NOW + 10 * PATIENCE)
    assert book.routing["m"] == Routing(NOBODY, AB)
    book.sent("g", "2", {CLUSTER: B}, NOW)
    book.accepted("g", "2", {CLUSTER: B}, NOW)
    assert book.routing["m"] == Routing(B, B)


def test_a_new_leader_knows_nobody_and_so_nothing_is_nowhere() -> None:
    book = Book()
    want(book, "b", "c")
    book.inherit({"m": AB}, NOW)
    assert book.routing["m"] == Routing(B, AB)
    assert book.tick(NOW + PATIENCE - 0.1) == NOBODY
    assert book.tick(NOW + PATIENCE) == {"m"}
    assert book.routing["m"] == Routing(frozenset("bc"), NOBODY)


def test_a_new_leader_hears_what_a_gateway_has() -> None:
    book = Book()
    want(book, "b")
    book.inherit({"m": AB}, NOW)
    book.joined("g", {CLUSTER: B}, NOW)
    assert book.routing["m"] == Routing(B, AB)
    book.tick(NOW + PATIENCE)
    assert book.routing["m"] == Routing(B, B)
