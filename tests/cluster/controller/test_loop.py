"""The loop between its neighbours: what it waits for, what it writes before it tells, and what it tells whom. Planner, intake and writer are real."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from tests.clock import Clock
from tests.cluster.waiting import until
from wakeful.cluster.controller.api import MODEL, POD, SERVER, UNREACHED, Kind, Manifest, Refusal
from wakeful.cluster.controller.figures import Figures
from wakeful.cluster.controller.intake import Intake
from wakeful.cluster.controller.loop import GREETINGS, Loop, Outlets
from wakeful.cluster.controller.telling import Neighbours, Telling
from wakeful.cluster.controller.wakes import Wakes
from wakeful.cluster.controller.writer import Key, Queue, Writer
from wakeful.cluster.dialects import DIALECTS
from wakeful.cluster.planning.effects import Note
from wakeful.cluster.planning.limits import Limits
from wakeful.cluster.planning.status import Observed
from wakeful.cluster.planning.world import Endpoint, Routing, World
from wakeful.cluster.wire import PROTOCOL, HeldNow, Hello, Report, Wanted
from wakeful.telemetry.logs import Log

START = 1_796_000_000.0


class Api:
    """Statuses, as they are written. `away`: the API server is not reached."""

    def __init__(self) -> None:
        self.away = False
        self.statuses: dict[str, dict[str, Any]] = {}
        self._versions = itertools.count(1000)

    async def patch(self, kind: Kind, name: str, body: Manifest, *, status: bool = False) -> Manifest:
        if self.away:
            raise Refusal(UNREACHED, "no answer")
        self.statuses[name] = {**self.statuses.get(name, {}), **body["status"]}
        return {"metadata": {"resourceVersion": str(next(self._versions))}}


class Others:
    """Agents, Envoys and workloads in one: what they were told last. Every gateway acknowledges at once what it is told."""

    def __init__(self) -> None:
        self.keys: dict[str, Mapping[str, str]] = {}
        """Of storage Secrets that can be read."""
        self.wanted: dict[str, Mapping[str, Wanted]] = {}
        self.version = 0
        """Of what was told last."""
        self.released: list[str] = []
        self.routes: dict[str, frozenset[str]] = {}
        self.inherited: dict[str, frozenset[str]] | None = None
        self.ensured: list[str] = []
        self.notes: list[Note] = []
        self.gateways = frozenset({"envoy"})
        self.acknowledged: Callable[[Iterable[str]], None] = lambda models: None

    def want(self, uid: str, models: Mapping[str, Wanted], version: int) -> None:
        self.wanted[uid], self.version = models, version

    def release(self, uid: str) -> None:
        self.released.append(uid)

    def set_routes(self, routes: Mapping[str, tuple[Endpoint, ...]]) -> None:
        self.routes = {name: frozenset(one.replica for one in there) for name, there in routes.items()}
        self.acknowledged(self.routes)

    def routing(self) -> dict[str, Routing]:
        return {name: Routing(uids, uids) for name, uids in self.routes.items()}

    def open(self, inherited: Mapping[str, frozenset[str]]) -> None:
        self.inherited = dict(inherited)

    def ensure(self, server: str) -> None:
        self.ensured.append(server)

    def observed(self, server: str) -> Observed:
        return Observed()

    def get(self, secret: str) -> Mapping[str, str] | None:
        return self.keys.get(secret)

    def why_not(self, secret: str) -> str:
        return "" if secret in self.keys else f"there is no Secret {secret}"


class Listing:
    def __init__(self) -> None:
        self.listed = asyncio.Event()


class Stage:
    """A leader's loop, and verbs to play the world to it."""

    def __init__(self) -> None:
        self.clock, self.api, self.others, self.listing = Clock(START), Api(), Others(), Listing()
        self.world = World()
        self.writer = Writer(self.api, self._status, lambda: True, lambda text: None, Queue(spacing=0.0, rate=1e6))
        self.intake = Intake(self.world, [DIALECTS["wakeful"]], self.writer, self.clock)
        self.others.acknowledged = self.intake.touch
        self.wakes = Wakes(self.world, self.intake.woken, self.clock)
        neighbours = Neighbours(self.others, self.others, self.others, self.others)
        self.telling = Telling(self.world, self.intake, self.writer, neighbours, self.clock)
        outlets = Outlets(self.others, self.others, self.writer, self.others, self.others.notes.append, self.telling, self.wakes)
        self.loop = Loop(self.world, self.intake, outlets, Limits(gateway_silence=0.0), Figures(Log()), self.clock)
        self._versions = itertools.count(1)

    def model(self, name: str, status: Mapping[str, Any] | None = None, **spec: Any) -> None:
        self._seen(MODEL, name, {"storageUri": f"file:///{name}", **spec}, status)

    def server(self, **spec: Any) -> None:
        self._seen(SERVER, "triton", spec)

    def pod(self, number: int = 0, *, leaving: bool = False) -> str:
        """Ready; its uid. Leaving: it was deleted, and has two minutes."""
        uid = f"u{number}"
        deleted = {"deletionTimestamp": "2026-11-30T01:00:00Z", "deletionGracePeriodSeconds": 120} if leaving else {}
        self.intake.seen(POD, {
            "metadata": {"name": f"triton-{number}", "uid": uid, "labels": {"wakeful.dev/server": "triton"}, **deleted},
            "status": {"podIP": f"10.0.0.{number}", "conditions": [{"type": "Ready", "status": "True"}]},
        })
        return uid

    def hello(self, uid: str, **held: HeldNow) -> None:
        number = uid[1:]
        self.intake.hello(Hello(PROTOCOL, f"triton-{number}", uid, "triton", 8080, None, ["onnx"], 1 << 30, "1", held=held))

    def ready(self, uid: str, *names: str) -> None:
        """The agent has loaded what it is to have."""
        self.intake.report(uid, Report({name: HeldNow("ready", self.others.wanted[uid][name].revision, 1000) for name in names}))

    def wants(self, uid: str) -> set[str]:
        return set(self.others.wanted.get(uid, {}))

    def state(self, model: str) -> str | None:
        return self.api.statuses.get(model, {}).get("state")

    def _status(self, key: Key) -> dict[str, Any] | None:
        return self.telling.status(key)

    def _seen(self, kind: Kind, name: str, spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> None:
        meta = {"name": name, "uid": f"uid-{name}", "generation": next(self._versions), "resourceVersion": str(next(self._versions))}
        self.intake.seen(kind, {"metadata": meta, "spec": dict(spec), "status": dict(status or {})})


def play(scene: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        stage = Stage()
        tasks = [asyncio.create_task(stage.loop.run([stage.listing])), asyncio.create_task(stage.writer.run())]
        try:
            await scene(stage)
        finally:
            for task in tasks:
                assert not task.done() or task.exception() is None
                task.cancel()

    asyncio.run(main())


async def serving(stage: Stage, name: str, **spec: Any) -> str:
    """A Server of one replica with a model that is served there."""
    stage.server(replicas=1)
    uid = stage.pod()
    stage.hello(uid)
    stage.model(name, **spec)
    stage.listing.listed.set()
    await until(lambda: stage.wants(uid) == {name})
    stage.ready(uid, name)
    await until(lambda: stage.state(name) == "Available")
    return uid


def test_a_model_is_assigned_loaded_routed_and_its_status_says_so() -> None:
    async def scene(stage: Stage) -> None:
        uid = await serving(stage, "cat")
        assert stage.others.routes == {"cat": frozenset({uid})}
        assert stage.api.statuses["cat"]["placements"][0]["state"] == "Routed"
        assert stage.others.ensured[0] == "triton"

    play(scene)


def test_a_copy_that_serves_stays_where_it_is_while_the_keys_of_its_storage_are_not_known() -> None:
    async def scene(stage: Stage) -> None:
        uid = await serving(stage, "cat")
        before = stage.others.wanted[uid]["cat"]
        stage.model("cat", storageUri="s3://another/cat", secretName="later")
        await until(lambda: stage.world.models["cat"].placements[uid].previous != "")
        assert stage.others.wanted[uid]["cat"] == before, "without keys the other revision could only fail"
        stage.others.keys["later"] = {"key": "k"}
        stage.intake.touch(["cat"])
        await until(lambda: stage.others.wanted[uid]["cat"].storage_uri == "s3://another/cat")
        assert stage.others.wanted[uid]["cat"].secret == {"key": "k"}
        stage.ready(uid, "cat")
        await until(lambda: stage.world.models["cat"].placements[uid].previous == "")
        stage.others.keys.clear()
        stage.intake.touch(["cat"])
        await until(lambda: stage.others.wanted[uid]["cat"].secret == {})
        assert stage.wants(uid) == {"cat"}

    play(scene)


def test_what_an_agent_said_before_it_heard_of_a_model_does_not_count() -> None:
    async def scene(stage: Stage) -> None:
        stage.server(replicas=1)
        uid = stage.pod()
        stage.intake.hello(Hello(PROTOCOL, "triton-0", uid, "triton", 8080, None, ["onnx"], 1 << 30, "1", seen=0))
        stage.model("cat")
        stage.listing.listed.set()
        await until(lambda: stage.wants(uid) == {"cat"})
        revision, version = stage.others.wanted[uid]["cat"].revision, stage.others.version
        stage.intake.report(uid, Report({"cat": HeldNow("ready", revision, 1000)}, seen=version - 1))  # of a copy that it has unloaded since
        await until(lambda: (agent := stage.world.replicas[uid].agent) is not None and bool(agent.held))
        await asyncio.sleep(0.05)
        assert stage.others.routes == {}
        stage.intake.report(uid, Report(seen=version))
        await until(lambda: stage.others.routes == {"cat": frozenset({uid})})

    play(scene)


def test_that_a_copy_sleeps_is_an_event_and_a_figure_of_its_server_and_changes_nothing_else() -> None:
    async def scene(stage: Stage) -> None:
        uid = await serving(stage, "cat")
        before = stage.api.statuses["cat"]
        revision = stage.others.wanted[uid]["cat"].revision
        for asleep, reason in ((True, "Evicted"), (False, "Woken")):
            stage.intake.report(uid, Report({"cat": HeldNow("ready", revision, 1000, asleep=asleep)}))
            await until(lambda reason=reason: [note.reason for note in stage.others.notes][-1:] == [reason])  # type: ignore[misc]  # of a default
            await until(lambda asleep=asleep: stage.api.statuses["triton"]["asleepModels"] == asleep)  # type: ignore[misc]  # of a default
        assert stage.api.statuses["cat"] is before

    play(scene)


def test_nothing_is_told_before_everything_is_listed_and_ready_replicas_have_spoken() -> None:
    async def scene(stage: Stage) -> None:
        stage.server(replicas=1)
        uid = stage.pod()
        stage.model("cat")
        await asyncio.sleep(0.05)
        assert stage.others.inherited is None
        stage.listing.listed.set()
        await asyncio.sleep(0.25)
        assert stage.others.inherited is None
        stage.hello(uid)
        await until(lambda: stage.others.inherited is not None)
        await until(lambda: stage.wants(uid) == {"cat"})

    play(scene)


def test_gateways_wait_a_while_for_a_replica_that_does_not_speak() -> None:
    async def scene(stage: Stage) -> None:
        stage.pod()
        stage.listing.listed.set()
        await asyncio.sleep(0.05)
        assert stage.others.inherited is None
        stage.clock.time += GREETINGS
        await until(lambda: stage.others.inherited is not None)

    play(scene)


def test_a_new_leader_routes_at_once_what_statuses_and_agents_tell() -> None:
    async def scene(stage: Stage) -> None:
        stage.server(replicas=2)
        first, second = stage.pod(0), stage.pod(1)
        revision = DIALECTS["wakeful"].model({"metadata": {"name": "cat"}, "spec": {"storageUri": "file:///cat", "replicas": 2}}).revision
        written = {"replica": "triton-0", "uid": first, "state": "Routed", "revision": revision, "since": "2026-11-30T00:00:00Z"}
        stage.model("cat", {"placements": [written], "scaling": {"owner": "User", "target": 2, "fromSpec": "2"}}, replicas=2)
        stage.hello(first, cat=HeldNow("ready", revision))
        stage.hello(second, cat=HeldNow("ready", revision))  # the status did not come to be written
        stage.listing.listed.set()
        await until(lambda: stage.others.inherited is not None)
        assert stage.others.inherited == {"cat": frozenset({first, second})}
        assert stage.others.routes == {"cat": frozenset({first, second})}
        assert stage.wants(second) == {"cat"}

    play(scene)


def test_a_target_is_written_before_any_agent_is_told() -> None:
    async def scene(stage: Stage) -> None:
        stage.server(replicas=1)
        uid = stage.pod()
        stage.hello(uid)
        kept = {"scaling": {"owner": "Scheduler", "target": 0, "fromSpec": ""}}
        stage.model("cat", kept, minReplicas=0, maxReplicas=2)
        stage.listing.listed.set()
        await until(lambda: stage.state("cat") == "ScaledDown")
        stage.api.away = True
        assert stage.wakes.wake("cat").state == "waking"
        await asyncio.sleep(0.1)
        assert stage.wants(uid) == set()
        stage.api.away = False
        stage.clock.time += 6
        await until(lambda: stage.wants(uid) == {"cat"})
        assert stage.api.statuses["cat"]["scaling"]["target"] == 1

    play(scene)


def test_a_model_for_which_nobody_may_wait_wakes_all_the_same() -> None:
    async def scene(stage: Stage) -> None:
        stage.server(replicas=1)
        uid = stage.pod()
        stage.hello(uid)
        stage.model("cat", {"scaling": {"owner": "Scheduler", "target": 0, "fromSpec": ""}}, minReplicas=0, autoscaling={"holdSeconds": 0})
        stage.listing.listed.set()
        await until(lambda: stage.state("cat") == "ScaledDown")
        assert stage.wakes.wake("cat").hold == 0
        stage.clock.time += 0.01
        await until(lambda: stage.wants(uid) == {"cat"})

    play(scene)


def test_who_waits_for_a_model_without_a_place_hears_what_its_status_says_and_no_more_once_it_has_one() -> None:
    async def scene(stage: Stage) -> None:
        stage.server(replicas=1)
        uid = stage.pod()
        stage.hello(uid)
        stage.model("cat", requirements=["gpu"])
        stage.listing.listed.set()
        await until(lambda: placed("cat", stage)["reason"] == "NoRoom")
        told = stage.wakes.wake("cat")
        assert (told.state, told.message) == ("waking", placed("cat", stage)["message"])
        assert "requirements" in told.message
        news = asyncio.ensure_future(stage.wakes.changed("cat"))
        stage.model("cat")
        await until(lambda: stage.wants(uid) == {"cat"})
        await news
        assert (told := stage.wakes.wake("cat")).state == "waking"
        assert told.message == ""

    play(scene)


def placed(model: str, stage: Stage) -> dict[str, Any]:
    return next((one for one in stage.api.statuses.get(model, {}).get("conditions", ()) if one["type"] == "Placed"), {"reason": ""})


def test_while_the_api_server_is_away_a_leaving_replica_is_still_emptied() -> None:
    async def scene(stage: Stage) -> None:
        stage.clock.time = 1_795_999_900.0 - 86_400
        first = await serving(stage, "cat")
        second = stage.pod(1)
        stage.hello(second)
        await until(lambda: second in stage.world.replicas and stage.world.replicas[second].placeable)
        stage.api.away = True
        stage.pod(0, leaving=True)
        await until(lambda: stage.wants(second) == {"cat"})
        assert not stage.others.wanted[first]["cat"].finish
        stage.ready(second, "cat")
        await until(lambda: stage.others.wanted[first]["cat"].finish)
        assert stage.others.routes == {"cat": frozenset({second})}
        stage.intake.report(first, Report({"cat": HeldNow("quiet", stage.others.wanted[first]["cat"].revision)}))
        await until(lambda: stage.wants(first) == set())
        await until(lambda: stage.others.released == [first])

    play(scene)


def test_prestop_of_a_pod_that_is_not_deleted_is_let_go_after_a_while() -> None:
    async def scene(stage: Stage) -> None:
        uid = await serving(stage, "cat")
        stage.intake.drain_asked(uid)
        await asyncio.sleep(0.05)
        assert stage.others.released == []
        stage.clock.time += 6
        await until(lambda: stage.others.released == [uid])
        assert stage.others.routes == {"cat": frozenset({uid})}

    play(scene)


def test_a_deleted_model_is_unrouted_finished_and_forgotten() -> None:
    async def scene(stage: Stage) -> None:
        uid = await serving(stage, "cat")
        stage.intake.vanished(MODEL, "cat")
        await until(lambda: stage.others.wanted[uid]["cat"].finish)
        assert stage.others.routes == {}
        stage.intake.report(uid, Report({"cat": HeldNow("quiet", stage.others.wanted[uid]["cat"].revision)}))
        await until(lambda: stage.wants(uid) == set())
        await until(lambda: "cat" not in stage.world.models)

    play(scene)


def test_what_gateways_hear_of_a_model() -> None:
    async def scene(stage: Stage) -> None:
        await serving(stage, "cat")
        stage.model("off", replicas=0)
        await until(lambda: stage.state("off") == "ScaledDown")
        assert stage.wakes.wake("cat").state == "routed"
        assert (told := stage.wakes.wake("cta")).state == "unknown"
        assert told.near == ["cat"]
        assert stage.wakes.wake("off").state == "off"

    play(scene)
