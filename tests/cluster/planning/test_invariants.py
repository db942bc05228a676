"""What holds whatever happens: random events, faults and delays.

The modelled cluster itself fails where something is unloaded that a gateway may still send to, where something is routed that does not answer, where
more is registered than may be, and where a second plan of the same world would do something.
"""

import os
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.cluster.planning.modelled import GIB, MIB, Cluster
from wakeful.cluster.planning.counts import floor_of
from wakeful.cluster.planning.draft import Draft, holders
from wakeful.cluster.planning.drain import plan_drain
from wakeful.cluster.planning.effects import Drop, Put, SetTarget
from wakeful.cluster.planning.ledger import Ledger
from wakeful.cluster.planning.placement import place
from wakeful.cluster.planning.revisions import respecify
from wakeful.cluster.planning.world import Bounds, State, Use

MODELS = [f"m{index}" for index in range(6)]
PODS = [f"{server}-{ordinal}" for server in ("triton", "mlserver") for ordinal in range(3)]
BOUNDS = st.sampled_from([Bounds(1), Bounds(2), Bounds(3), Bounds(0), Bounds(1, 1, 3), Bounds(1, 0, 2), Bounds(None, 2), Bounds()])
"""Both kinds: fixed counts and ranges."""
SERVERS = st.sampled_from([None, None, "triton", "mlserver"])


class Happenings(RuleBasedStateMachine):
    """Rules are what people, Kubernetes, daemons and gateways do; each ends with a plan."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(gateways=2)
        self.cluster.server("triton", 2, overcommit=0.5)
        self.cluster.server("mlserver", 1, overcommit=0.0)

    @initialize(delay=st.sampled_from([0.0, 0.7, 3.0]), lot=st.sampled_from([None, 1, 2]))
    def gateways_are_slow(self, delay: float, lot: int | None) -> None:
        """And a plan looks at no more than so many models."""
        self.cluster.ack_delay, self.cluster.lot = delay, lot

    @rule(name=st.sampled_from(MODELS), bounds=BOUNDS, size=st.sampled_from([50, 300, 700, 2000]), server=SERVERS)
    def a_model_is_applied(self, name: str, bounds: Bounds, size: int, server: str | None) -> None:
        self.cluster.model(name, memory=size * MIB, bounds=bounds, server=server)
        self.cluster.decide()

    @rule(name=st.sampled_from(MODELS), revision=st.sampled_from(["r1", "r2", "r3"]))
    def a_model_gets_another_revision(self, name: str, revision: str) -> None:
        entry = self.cluster.world.models.get(name)
        if entry is not None:
            respecify(entry, replace(entry.spec, revision=revision, storage_uri=f"s3://models/{name}/{revision}"))
            self.cluster.dirty.add(name)
            self.cluster.decide()

    @rule(name=st.sampled_from(MODELS), server=SERVERS, requires=st.sampled_from([frozenset(), frozenset({"onnx"}), frozenset({"gpu"})]))
    def a_model_belongs_elsewhere(self, name: str, server: str | None, requires: frozenset[str]) -> None:
        entry = self.cluster.world.models.get(name)
        if entry is not None:
            respecify(entry, replace(entry.spec, server=server, requirements=requires))
            self.cluster.dirty.add(name)
            self.cluster.decide()

    @rule(name=st.sampled_from(MODELS), hpa=st.booleans(), count=st.sampled_from([None, 0, 1, 3]))
    def an_autoscaler_comes_goes_or_writes(self, name: str, hpa: bool, count: int | None) -> None:
        entry = self.cluster.world.models.get(name)
        if entry is not None:
            entry.hpa = hpa
            if count is not None:
                respecify(entry, replace(entry.spec, bounds=entry.spec.bounds._replace(replicas=count)))
            self.cluster.dirty.add(name)
            self.cluster.decide()

    @rule(pod=st.sampled_from(PODS), ready=st.booleans(), lost=st.booleans())
    def a_node_falters(self, pod: str, ready: bool, lost: bool) -> None:
        """Its pods are not ready, and perhaps lost; or they are ready again."""
        self.cluster.falter(pod, ready=ready, lost=lost)
        self.cluster.decide()

    @rule(name=st.sampled_from(MODELS))
    def a_model_is_deleted(self, name: str) -> None:
        if name in self.cluster.world.models:
            self.cluster.delete_model(name)
            self.cluster.decide()

    @rule(name=st.sampled_from(MODELS), lag=st.sampled_from([0.0, 5.0, 60.0, 400.0]), busy=st.sampled_from([0.0, 0.3, 0.9]))
    def a_model_is_used(self, name: str, lag: float, busy: float) -> None:
        for pod in self.cluster.pods.values():
            if name in pod.models:
                pod.use[name] = Use(10, 10, lag, busy, self.cluster.now)

    @rule(name=st.sampled_from(MODELS))
    def a_request_waits(self, name: str) -> None:
        if name in self.cluster.world.models:
            self.cluster.world.models[name].wanted_until = self.cluster.now + 60
            self.cluster.dirty.add(name)
            self.cluster.decide()

    @rule(pod=st.sampled_from(PODS), size=st.sampled_from([GIB, 3 * GIB]), can=st.sampled_from([("onnx",), ("onnx", "gpu")]))
    def a_pod_starts(self, pod: str, size: int, can: tuple[str, ...]) -> None:
        if all(replica.pod != pod for replica in self.cluster.world.replicas.values()):
            self.cluster.start(pod, size, can)
            self.cluster.decide()

    @rule(pod=st.sampled_from(PODS))
    def a_pod_is_deleted(self, pod: str) -> None:
        for replica in self.cluster.world.replicas.values():
            if replica.pod == pod and replica.leaving_by is None:
                self.cluster.delete_pod(pod, grace=40)
                self.cluster.decide()

    @rule(pod=st.sampled_from(PODS))
    def a_pod_dies(self, pod: str) -> None:
        if any(replica.pod == pod for replica in self.cluster.world.replicas.values()):
            self.cluster.kill(pod)
            self.cluster.decide()

    @rule(pod=st.sampled_from(PODS))
    def a_container_restarts(self, pod: str) -> None:
        if any(replica.pod == pod for replica in self.cluster.world.replicas.values()):
            self.cluster.restart(pod)
            self.cluster.decide()

    @rule(pod=st.sampled_from(PODS), silent=st.booleans())
    def an_agent_falls_silent_or_speaks(self, pod: str, silent: bool) -> None:
        (self.cluster.silent.add if silent else self.cluster.silent.discard)(pod)
        self.cluster.turn()

    @rule(name=st.sampled_from([*MODELS, "r2"]), pod=st.sampled_from([*PODS, "*"]), fails=st.booleans())
    def loads_fail_or_do_not(self, name: str, pod: str, fails: bool) -> None:
        (self.cluster.fails.add if fails else self.cluster.fails.discard)((name, pod))

    @rule(name=st.sampled_from(MODELS), seconds=st.sampled_from([0.5, 5.0, 1e6]))
    def loads_take_another_time(self, name: str, seconds: float) -> None:
        self.cluster.load_seconds[name] = seconds

    @rule(pod=st.sampled_from(PODS), name=st.sampled_from(MODELS))
    def a_loaded_model_breaks(self, pod: str, name: str) -> None:
        for uid, daemon in self.cluster.pods.items():
            if self.cluster.world.replicas[uid].pod == pod and name in daemon.models:
                daemon.models[name].failed, daemon.models[name].serves = True, ""
                self.cluster.report(uid)
                self.cluster.decide()

    @rule(uid=st.integers(0, 5))
    def one_agent_acts_alone(self, uid: int) -> None:
        uids = list(self.cluster.pods)
        if uids:
            self.cluster.act(uids[uid % len(uids)])
            self.cluster.report(uids[uid % len(uids)])
            self.cluster.decide()

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.run(seconds, step=max(seconds / 10, 0.5))
        self.released_pods_end()

    def released_pods_end(self) -> None:
        for replica in list(self.cluster.world.replicas.values()):
            if replica.released:
                self.cluster.kill(replica.pod)
        self.cluster.decide()

    @invariant()
    def accounts_are_the_sums(self) -> None:
        """What is kept up to date step by step is what a count from the beginning gives."""
        world, fresh = self.cluster.world, Ledger()
        for name, model in world.models.items():
            fresh.weigh(name, world.ledger.weight(name), holders(model))
        kept, counted = world.ledger.accounts(), fresh.accounts()
        assert {uid: (account.registered, account.active) for uid, account in kept.items()} == {
            uid: (account.registered, account.active) for uid, account in counted.items()
        }

    @invariant()
    def targets_are_within_bounds(self) -> None:
        for name, model in self.cluster.world.models.items():
            if not model.gone and not model.hpa and model.spec.bounds.ranged:
                target, bounds = self.cluster.target(name), model.spec.bounds
                assert floor_of(bounds) <= target
                assert bounds.maximum is None or target <= bounds.maximum

    @invariant()
    def nothing_is_told_to_load_where_nothing_may_be(self) -> None:
        for model in self.cluster.world.models.values():
            assert len({self.cluster.world.replicas[uid].pod for uid in model.placements if uid in self.cluster.world.replicas}) == len(
                [uid for uid in model.placements if uid in self.cluster.world.replicas]
            ), "one copy a replica"

    def teardown(self) -> None:
        """When all faults are over, every model has what it asks for, or a reason that is true."""
        cluster = self.cluster
        cluster.fails.clear()
        cluster.silent.clear()
        cluster.load_seconds.clear()
        for one in PODS:
            cluster.falter(one, ready=True, lost=False)
        for uid, pod in list(cluster.pods.items()):
            for name in [name for name, loaded in pod.models.items() if loaded.failed or loaded.ready_at > cluster.now + 10]:
                del pod.models[name]
            if cluster.world.replicas[uid].leaving_by is not None:
                cluster.kill(cluster.world.replicas[uid].pod)
        cluster.run(360, step=1)
        self.released_pods_end()
        cluster.run(20, step=1)
        for name, model in cluster.world.models.items():
            assert not model.gone, f"{name} is deleted and does not end"
            serving = [placement for placement in model.placements.values() if placement.state is State.ROUTED]
            if len(serving) < cluster.target(name):
                draft = Draft(cluster.world, [name], cluster.now, cluster.limits)
                placed = place(draft.ask(draft.model(name)), 1, draft.sites)
                assert not placed.chosen, f"{name} has {len(serving)} of {cluster.target(name)} copies, and there is room on {placed.chosen}"
                assert model.short is not None, f"{name} is short and does not say so"
            else:
                assert len(serving) == cluster.target(name) == len(model.placements), f"{name}: {model.placements}"
            for placement in serving:
                assert placement.revision in {model.spec.revision, *({"r1", "r2", "r3"} if model.revision_failed else ())}
        self.nothing_is_left_to_do()
        assert plan_drain(frozenset(), Draft(cluster.world, (), cluster.now, cluster.limits)) == []

    def nothing_is_left_to_do(self) -> None:
        """As long as nothing happens, only counts may change, which follow load and time."""
        cluster = self.cluster
        cluster.told.clear()
        cluster.run(100, step=1)
        counted = {effect.model for _, effect in cluster.told if isinstance(effect, SetTarget)}
        moves = [told for told in cluster.told if isinstance(told[1], Put | Drop) and told[1].model not in counted]
        assert moves == [], "copies move for ever"


Happenings.TestCase.settings = settings(
    max_examples=int(os.environ.get("WAKEFUL_TEST_WORLDS", "40")), stateful_step_count=30, deadline=None, derandomize=True, print_blob=False,
    suppress_health_check=list(HealthCheck),
)
TestHappenings = Happenings.TestCase
