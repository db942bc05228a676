"""What goes wrong, in every two hours of a simulation."""

from tests.cluster.simulation.run import Simulation
from tests.cluster.simulation.shape import START

BLOCK = 7200
"""Seconds."""
LEADERS = 2
"""Killed at random moments of each block, beside the one that cannot write."""
REFUSAL = 120.0
QUIET = 900
"""Seconds at the end of the whole in which nothing goes wrong."""


def arrange(simulation: Simulation) -> None:
    """A server replica lost; five leaving at once; the HPA down to two fifths and back; leaders killed at random; and while the HPA takes replicas
    away, the API server refuses all writes for two minutes, and in the middle of that the leader dies.

    That one target is slow and one model never loads is always so.
    """
    for begin in range(0, simulation.shape.seconds, BLOCK):
        length = min(BLOCK, simulation.shape.seconds - begin - QUIET)
        if length > 0:
            _arrange_block(simulation, START + begin, length)


def _arrange_block(simulation: Simulation, begin: int, length: int) -> None:
    at, replicas = simulation.events.at, simulation.shape.replicas

    def lose(_: float) -> None:
        simulation.lose_pod(_pick(simulation, 1)[0])

    def leave(_: float) -> None:
        for uid in _pick(simulation, 5):
            simulation.pods.delete(uid)

    def shrink(now: float) -> None:
        simulation.autoscale(max(replicas * 2 // 5, 1))
        simulation.api.refuses_until = now + REFUSAL

    at(begin + 0.15 * length, lose)
    at(begin + 0.30 * length, leave)
    at(begin + 0.45 * length, shrink)
    at(begin + 0.45 * length + REFUSAL / 2, lambda _: simulation.kill_leader())
    at(begin + 0.60 * length, lambda _: simulation.autoscale(replicas))
    for _ in range(LEADERS):
        at(begin + float(simulation.rng.random()) * length, lambda _: simulation.kill_leader())


def _pick(simulation: Simulation, count: int) -> list[str]:
    """Pods that are there and stay; a fifth of them at most, or there is no room for what they have."""
    staying = simulation.pods.staying()
    return [str(uid) for uid in simulation.rng.choice(staying, min(count, -(-len(staying) // 5)), replace=False)]
