"""925 models where there is room for fewer: sums stay what they are, whatever is learnt, and go back to nothing (somebody else's came to 1.8e19)."""

from tests.cluster.planning.modelled import Cluster
from wakeful.cluster.planning.shortfall import shortfall_text
from wakeful.cluster.planning.world import State

MIB = 1024**2
COUNT, SIZE = 925, 1 * MIB
ROOM = int(COUNT * SIZE / 2.2)
"""Capacity with which a tenth more than it is half of what is asked for."""


def test_925_models_at_a_tenth_of_overcommit() -> None:
    cluster = Cluster()
    cluster.server(capacity=ROOM, overcommit=0.1)
    names = [f"m{number:03}" for number in range(COUNT)]
    for name in names:
        cluster.model(name, memory=SIZE)
    cluster.run(3, step=1.0)
    [uid] = cluster.pods
    placed = [name for name in names if cluster.at(name)]
    refused = [name for name in names if name not in placed]
    assert len(placed) == int(ROOM * 1.1) // SIZE
    assert cluster.world.ledger.accounts()[uid].registered == len(placed) * SIZE
    short = cluster.world.models[refused[0]].short
    assert short is not None
    assert shortfall_text(short, cluster.world, cluster.world.models[refused[0]]) == "triton: memory on 1 of 1 replica"

    for name in placed:  # each is found to be twenty times as large: what is there stays, nothing comes
        cluster.world.models[name].footprint = 20 * SIZE
        cluster.dirty.add(name)
    cluster.run(40, step=20.0)
    assert [name for name in names if cluster.at(name)] == placed
    assert cluster.world.ledger.accounts()[uid].registered == len(placed) * 20 * SIZE

    for name in placed:
        cluster.delete_model(name)
    cluster.run(10, step=1.0)
    followed = [name for name in refused if cluster.at(name, State.ROUTED)]
    assert len(followed) == min(len(refused), int(ROOM * 1.1) // SIZE)
    assert cluster.world.ledger.accounts()[uid].registered == len(followed) * SIZE
    for name in refused:
        cluster.delete_model(name)
    cluster.run(10, step=1.0)
    assert cluster.world.ledger.accounts() == {}
