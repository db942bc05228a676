"""Scenario 31: two controllers lead at once, because one does not know that its Lease is another's. What the old one says is not obeyed."""

import os
import signal

from tests.brokers import free_port
from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server
from tests.cluster.ground.parts import LEASE_SECONDS, Controller, controller_address
from tests.cluster.ground.proxy import Proxy
from tests.daemon import freeze
from wakeful.cluster.manifests import CONTROLLER_PORT

LONG = "3600"
"""Seconds of a Lease whose holder does not look at it again while the test runs."""


def _leader_that_will_not_hear(cluster: Cluster) -> tuple[Controller, Proxy]:
    """A controller that leads, and its way to the API server."""
    way = Proxy("127.0.0.1", free_port(), [(cluster.plane.host, 6443)])
    cluster.proxies.append(way)
    old = Controller(cluster, 0, "--lease-seconds", LONG)
    kubeconfig = cluster.directory / "controller-0.kubeconfig"
    kubeconfig.write_text(kubeconfig.read_text().replace(cluster.plane.url, f"https://localhost:{way.address[1]}"))
    cluster.processes.append(old.start())
    cluster.until(lambda: old.leads, 30, "it leads")
    return old, way


def test_what_an_old_leader_says_is_not_obeyed(cluster: Cluster) -> None:
    old, api = _leader_that_will_not_hear(cluster)
    agents = cluster.slow_way()
    cluster.agents_by(agents)
    cluster.apply(server("triton", replicas=2), *(model(name, models.quick(cluster.directory, name), replicas=2) for name in ("kept", "deleted")))
    cluster.until(lambda: cluster.model("kept").available == cluster.model("deleted").available == 2, 60, "both models are on both servers")

    api.targets.clear()
    api.cut()
    cluster.patch("Lease", "wakeful-controller", {"spec": {"holderIdentity": ""}}, "coordination.k8s.io/v1")
    new = cluster.controller(1)
    assert (old.leads, new.leads) == (True, True)
    agents.targets[:] = [(controller_address(cluster, 1), CONTROLLER_PORT)]
    agents.cut()
    cluster.until(lambda: _agents(new) == 2, 30, "the new leader has both agents")
    cluster.delete("Model", "deleted")
    cluster.apply(model("added", models.quick(cluster.directory, "added"), replicas=2))
    cluster.until(lambda: cluster.model("added").available == 2, 30, "it is obeyed")
    cluster.until(lambda: _served(cluster) == [{"kept", "added"}] * 2, 30, "and what was deleted is gone")

    agents.targets[:] = [(controller_address(cluster, 0), CONTROLLER_PORT)]
    agents.cut()
    refusals = f"this controller leads in {int(old.metric('wakeful_controller_epoch'))}"
    cluster.until(lambda: all(refusals in pod.log() for pod in cluster.pods("triton")), 30, "both agents have asked the old one, and heard why not")
    cluster.always(lambda: _agents(old) == 0 and _served(cluster) == [{"kept", "added"}] * 2, 5, "nothing that it wants happens")

    agents.targets[:] = [(controller_address(cluster, number), CONTROLLER_PORT) for number in (1, 0)]
    cluster.until(lambda: _agents(new) == 2, 30, "both agents are back at the new one")
    cluster.until(lambda: cluster.model("kept").available == cluster.model("added").available == 2)


def test_a_leader_that_has_slept_tells_gateways_nothing_of_before(cluster: Cluster) -> None:
    """It is all that a gateway finds when it wakes up, and knows a model that another leader has taken away meanwhile."""
    gateway = cluster.up(server("triton"), *(model(name, models.quick(cluster.directory, name)) for name in ("kept", "deleted")))
    sleeper, seen = cluster.processes[0], gateway.envoy.clusters
    freeze(sleeper.pid)
    new = cluster.controller(1)
    cluster.until(lambda: new.leads, 40, "another one leads")
    cluster.delete("Model", "deleted")
    cluster.until(lambda: "model/deleted" not in seen() and "model/kept" in seen(), 30, "the gateway has heard of it")
    with cluster.load(gateway.http, ["kept"], 50, grpc=gateway.grpc) as load:
        freeze(new.pid)
        os.kill(sleeper.pid, signal.SIGCONT)
        cluster.always(lambda: "model/deleted" not in seen() and "model/kept" in seen(), LEASE_SECONDS * 3, "the routes stay as they are")
        cluster.apply(model("added", models.quick(cluster.directory, "added")))
        cluster.until(lambda: "model/added" in seen(), 40, "it leads again, and knows how things stand")
        assert "model/deleted" not in seen()
    load.nothing_lost()


def _agents(controller: Controller) -> float:
    return controller.metric("wakeful_controller_agents")


def _served(cluster: Cluster) -> list[set[str]]:
    return [pod.models() for pod in cluster.pods("triton")]
