"""Scenario 33: gateways are killed, join late, stand still, and refuse what they are told. No copy is unloaded while one of them may still use it."""

import os
import signal
import time
from pathlib import Path

import grpc

from tests.cluster.gateway.calls import call, told_to_go
from tests.cluster.ground import models
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server
from tests.cluster.ground.parts import IMAGE, GatewayParts, controller_address
from tests.cluster.ground.puppet import Follower, Puppet
from tests.cluster.ground.views import PodView
from tests.daemon import freeze
from wakeful.cluster.install import GATEWAY, GATEWAY_PORT, install_objects
from wakeful.cluster.manifests import CONTROLLER, CONTROLLER_PORT, Install
from wakeful.cluster.planning.book import PATIENCE


def _up(cluster: Cluster, replicas: int) -> GatewayParts:
    gateway = cluster.up(server("triton", replicas=replicas), model("m", models.quick(cluster.directory, "m"), replicas=replicas))
    _has(cluster, gateway, replicas)
    return gateway


def _has(cluster: Cluster, gateway: GatewayParts, count: int) -> None:
    cluster.until(lambda: len(gateway.envoy.clusters().get("model/m", ())) == count, 40, f"{gateway.settings.node} sends to {count}")


def _fewer(cluster: Cluster, count: int) -> None:
    cluster.patch("Model", "m", {"spec": {"replicas": count}})


def test_one_that_is_killed_is_waited_for_a_while_and_comes_back(cluster: Cluster) -> None:
    """Its Envoy may have lost the controller only, and go on."""
    gateway, m = _up(cluster, 2), cluster.model("m")
    other = cluster.gateway(1)
    _has(cluster, other, 2)
    with cluster.load(gateway.http, ["m"], 100, grpc=gateway.grpc) as load:
        other.envoy.stop(signal.SIGKILL)
        killed = time.monotonic()
        _fewer(cluster, 1)
        _has(cluster, gateway, 1)
        cluster.always(lambda: len(m.placements) == 2, killed + 0.8 * PATIENCE - time.monotonic(), "it may still be used")
        cluster.until(lambda: len(m.placements) == 1, 30, "the killed one is not waited for any more")
        other.start_envoy()
        _has(cluster, other, 1)
    load.nothing_lost()
    with cluster.load(other.http, ["m"], 100, grpc=other.grpc) as load:
        cluster.until(lambda: load.good >= 100)
    load.nothing_lost()


def test_one_that_joins_late_is_waited_for(cluster: Cluster) -> None:
    gateway, m = _up(cluster, 2), cluster.model("m")
    with cluster.load(gateway.http, ["m"], 100, grpc=gateway.grpc) as load:
        late = cluster.gateway(1)
        with cluster.load(late.http, ["m"], 50, grpc=late.grpc) as through_it:  # from its first moment
            _has(cluster, late, 2)
            cluster.until(lambda: through_it.good >= 50)
        through_it.nothing_lost()
        freeze(late.envoy.process.pid)
        frozen = time.monotonic()
        _fewer(cluster, 1)
        _has(cluster, gateway, 1)
        cluster.always(lambda: len(m.placements) == 2, frozen + 0.6 * PATIENCE - time.monotonic(), "it has not acknowledged")
        os.kill(late.envoy.process.pid, signal.SIGCONT)
        _has(cluster, late, 1)
        cluster.until(lambda: len(m.placements) == 1, what="both have")
    load.nothing_lost()


def test_a_refusal_is_no_acknowledgement(cluster: Cluster) -> None:
    """However often it comes: unlike one that is silent, one that refuses is there, and sends where it did."""
    gateway, m = _up(cluster, 2), cluster.model("m")
    assert gateway.settings.ca is not None
    assert gateway.settings.token is not None
    channel = grpc.secure_channel(
        f"{controller_address(cluster, 0)}:{CONTROLLER_PORT}", grpc.ssl_channel_credentials(gateway.settings.ca.read_bytes()),
        (("grpc.ssl_target_name_override", CONTROLLER),),
    )
    puppet = Puppet(channel, "stubborn", 120.0, gateway.settings.token.read_text())
    with Follower(puppet) as stubborn, cluster.load(gateway.http, ["m"], 100, grpc=gateway.grpc) as load:
        cluster.until(lambda: len(stubborn.taken.get("model/m", "").split()) == 3, what="it has a digest and two replicas")
        stubborn.refusal = "no such thing"
        _fewer(cluster, 1)
        _has(cluster, gateway, 1)
        cluster.always(lambda: len(m.placements) == 2, 1.2 * PATIENCE, "one of two gateways has refused")
        assert stubborn.refused > 1
        cluster.until(lambda: cluster.events("stubborn", "RoutesRefused"), what="it is told")
        assert m.ready
        stubborn.refusal = ""
        cluster.until(lambda: len(m.placements) == 1, what="it has acknowledged")
    load.nothing_lost()


def test_a_helper_that_hangs_is_restarted_and_its_envoy_goes_on(cluster: Cluster) -> None:
    """As it is shipped, but for the periods of the probe. Envoy has one thread for its quarter of a processor, whatever the node has."""
    cluster.controller()
    cluster.apply(server("triton"), model("m", models.quick(cluster.directory, "m")))
    shipped = install_objects(Install(namespace=cluster.namespace, image=IMAGE, gateways=1))
    [deployment] = [one for one in shipped if (one["kind"], one["metadata"]["name"]) == ("Deployment", GATEWAY)]
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessProbe"] |= {"periodSeconds": 1, "failureThreshold": 3, "timeoutSeconds": 2}
    cluster.apply(deployment)
    cluster.until(lambda: _gateways(cluster) and _gateways(cluster)[0].ready, 60, "the gateway is there")
    [pod] = _gateways(cluster)
    url = f"{pod.status['podIP']}:{GATEWAY_PORT}"
    cluster.until(lambda: cluster.model("m").ready, 60, "the model is there")
    assert "--concurrency\0001\0" in Path(f"/proc/{pod.pid('envoy')}/cmdline").read_text()
    with cluster.load(f"http://{url}", ["m"], 50, grpc=url) as load:
        cluster.until(lambda: load.good > 10, what="requests are answered")
        freeze(pod.pid("helper"))
        cluster.until(lambda: pod.restarts == 1, 60, "the helper is restarted")
        cluster.until(lambda: call(f"http://{url}", "POST", "/v2/models/n/infer", {})[0] == 404, 30, "it answers again")
        assert pod.ready
        assert not told_to_go(url), "Envoy sends nobody away"
    load.nothing_lost()


def _gateways(cluster: Cluster) -> list[PodView]:
    return [pod for pod in cluster.pods() if pod.name.startswith(GATEWAY)]
