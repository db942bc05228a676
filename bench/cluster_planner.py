"""How long the cluster's planner takes, by hand: `python -m bench.cluster_planner [models] [replicas]`. CPU milliseconds, the best of some tries."""

import gc
import sys
import time
from collections.abc import Callable

from wakeful.cluster.planning.apply import apply
from wakeful.cluster.planning.effects import Put
from wakeful.cluster.planning.limits import Limits
from wakeful.cluster.planning.plan import affected, plan
from wakeful.cluster.planning.routing import desired, endpoints, routes
from wakeful.cluster.planning.world import (
    Agent,
    Bounds,
    Held,
    ModelEntry,
    ModelSpec,
    Replica,
    Routing,
    ServerEntry,
    ServerSpec,
    State,
    Use,
    World,
)

GIB, MIB = 1024**3, 1024**2
NOW = 1000.0
LIMITS = Limits()


def build(models: int, replicas: int, copies: int) -> World:
    """Nothing is placed yet; sizes and loads differ as in life: few models have most of the traffic."""
    world = World(led_since=-1000.0)
    world.servers["triton"] = ServerEntry(ServerSpec("triton", bounds=Bounds(replicas)))
    for ordinal in range(replicas):
        agent = Agent(frozenset({"onnx", "python"}), 512 * GIB, 8000, 8001, NOW)
        uid = f"uid{ordinal}"
        world.replicas[uid] = Replica(uid, f"triton-{ordinal}", "triton", ordinal, f"10.0.0.{ordinal}", ready=True, agent=agent)
    for index in range(models):
        count = copies or max(1, min(replicas, round(60 / (index + 1))))
        bounds, memory = Bounds(count, 0, replicas), (50 << index % 5) * MIB
        spec = ModelSpec(f"m{index}", "s3://m", "r1", memory=memory, bounds=bounds, requirements=frozenset({"onnx"}))
        world.models[spec.name] = ModelEntry(spec)
    return world


def load(world: World) -> None:
    """Agents say that all is ready and in use."""
    for name, model in world.models.items():
        for uid in model.placements:
            agent = world.replicas[uid].agent
            assert agent is not None
            agent.held[name] = Held("ready", "r1", 100 * MIB)
            agent.use[name] = Use(100, 100, 5.0, 0.3, NOW)
        world.routing[name] = Routing(frozenset(model.placements), frozenset(model.placements))


def best(title: str, what: Callable[[], object], tries: int = 5) -> None:
    times = []
    for _ in range(tries):
        gc.collect()
        began = time.process_time()
        answer = what()
        times.append((time.process_time() - began) * 1e3)
    size = f"  ({len(answer)})" if isinstance(answer, list | dict) else ""
    print(f"  {title:58} {min(times):9.3f}{size}")


def measure(models: int, replicas: int, copies: int) -> None:
    world = build(models, replicas, copies)
    everything = frozenset(world.models)
    effects = plan(world, everything, NOW, LIMITS)
    print(f"{models} models on {replicas} replicas, {sum(isinstance(effect, Put) for effect in effects)} placements")
    best("whole world placed", lambda: plan(world, everything, NOW, LIMITS))
    began = time.process_time()
    apply(world, effects)
    print(f"  {'carried out':58} {(time.process_time() - began) * 1e3:9.3f}")
    load(world)
    best("whole world becomes ready", lambda: plan(world, everything, NOW + 2, LIMITS))
    apply(world, plan(world, everything, NOW + 2, LIMITS))
    best("whole world, nothing to do", lambda: plan(world, everything, NOW + 2, LIMITS))
    best("no model, nothing to do (a tick)", lambda: plan(world, frozenset(), NOW + 3, LIMITS))
    best("one model, nothing to do", lambda: plan(world, frozenset({"m3"}), NOW + 3, LIMITS))
    small = world.models[f"m{models // 2}"]
    small.spec = ModelSpec(small.spec.name, "s3://m", "r1", memory=50 * MIB, bounds=Bounds(len(small.placements) + 1))
    best("one model, one copy more", lambda: plan(world, frozenset({small.spec.name}), NOW + 3, LIMITS))
    best("routes of all", lambda: routes(world))
    best("endpoints of one model", lambda: endpoints(world, world.models["m3"]))
    best("what one replica is to have", lambda: desired(world, "uid7"))
    touched = affected(world, "uid7")
    world.replicas["uid7"].leaving_by = NOW + 100
    best(f"a replica with {len(touched)} models leaves", lambda: plan(world, touched, NOW + 3, LIMITS))
    world.replicas["uid7"].leaving_by = None
    world.replicas["uid7"].lost = True
    best(f"a replica with {len(touched)} models is lost", lambda: plan(world, touched, NOW + 3, LIMITS))
    assert not any(placement.state is State.FAILED for model in world.models.values() for placement in model.placements.values())


if __name__ == "__main__":
    models, replicas = (int(argument) for argument in (*sys.argv[1:], "1000", "50")[:2])
    for copies in (0, 3, replicas):
        measure(models, replicas, copies)
