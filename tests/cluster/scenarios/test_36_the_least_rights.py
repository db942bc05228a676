"""Scenario 36: the controller has the rights that it uses, and no others; who takes one away is told. What is deployed: test_manifests.py.

The API server's audit log says what was asked in a whole life: a first and a second start, Servers, Models, an HPA, Events, keys of storage.
"""

import asyncio
import time
from dataclasses import replace

import pytest

from tests.cluster.ground import models
from tests.cluster.ground.api import Object
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import by_resource, hpa, model, server
from tests.cluster.ground.parts import Controller
from wakeful.cli.parser import WRONG_USE
from wakeful.cluster.controller.api import Api
from wakeful.cluster.controller.preflight import look
from wakeful.cluster.controller.storage_keys import LABEL
from wakeful.cluster.install import REVIEW, STORAGE_RIGHT, TLS_SECRET, Right, install_objects, rights_of, rules_of
from wakeful.cluster.manifests import CONTROLLER, Install

pytestmark = pytest.mark.usefixtures("seldon_kinds")
SWITCHES = ("--seldon", "--storage-secrets")
EVERYTHING = Install(seldon=True, storage_secrets=True)
ANYBODYS = "selfsubjectaccessreviews"
"""Whoever is known may ask what he may do."""
Asked = tuple[str, str, str, str]
"""Group, resource, verb, and a name where only some are allowed."""


def _granted(rights: list[Right]) -> set[Asked]:
    return {
        (right.group, resource, verb, name)
        for right in rights for resource in right.resources for verb in right.verbs for name in right.names or ("",)
    }


def _asked(cluster: Cluster, granted: set[Asked]) -> set[Asked]:
    """What the controller has asked so far, with a name where the right has one."""
    asked: set[Asked] = set()
    for event in cluster.plane.asked_by(cluster.namespace, CONTROLLER):
        about = event["objectRef"]
        resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        if resource == ANYBODYS:
            continue
        created = event["verb"] == "patch" and event["responseStatus"]["code"] == 201  # an apply of what was not there needs both
        for verb in (event["verb"], *(["create"] if created else [])):
            one = (about.get("apiGroup", ""), resource, verb, about.get("name", ""))
            asked.add(one if one in granted else (*one[:3], ""))
    return asked


def test_the_controller_uses_all_its_rights_and_no_others(cluster: Cluster) -> None:
    """All at once: with Seldon's kinds and with keys of storage."""
    granted = _granted([*rights_of(EVERYTHING), REVIEW])
    first = cluster.controller(0, *SWITCHES)
    secret = cluster.api.path("v1", "Secret", cluster.namespace, TLS_SECRET)
    cluster.until(lambda: cluster.api.get(secret), what="it has a certificate")
    first.stop()
    cluster.api.merge(secret, {"data": {"tls.crt": ""}})  # as one that is to be renewed
    first.start()
    cluster.until(lambda: first.leads, what="it leads again")
    keys = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "labels": {LABEL: "true"}}, "stringData": {"AWS_REGION": "here"}}
    old: Object = {"apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Server", "metadata": {"name": "old"}, "spec": {"serverConfig": "triton"}}
    files = cluster.directory
    cluster.apply(keys, old, server("triton"), hpa("Server", "triton", 1, 2, by_resource("cpu", 50)))
    cluster.apply(model("m", models.quick(files, "m")), model("n", models.quick(files, "n"), secretName="keys"))
    cluster.apply({**model("o", models.quick(files, "o")), "apiVersion": "mlops.seldon.io/v1alpha1"})
    cluster.until(lambda: cluster.model("m").ready, 40, "the model is ready")
    cluster.patch("Server", "triton", {"spec": {"image": "wakeful:next"}})

    cluster.until(lambda: _asked(cluster, granted) >= granted, 60, "all rights are used")
    assert _asked(cluster, granted) == granted
    assert not [event for event in cluster.plane.asked_by(cluster.namespace, CONTROLLER) if event["responseStatus"]["code"] == 403]


def _take_away(cluster: Cluster, which: Install, right: Right | None = None, verb: str = "") -> None:
    """The rights of an installation as they are to be, without this verb."""
    [taken] = rules_of([right]) if right is not None else [None]
    for thing in install_objects(replace(which, namespace=cluster.namespace)):
        if thing["kind"] in ("Role", "ClusterRole"):
            rules = [{**rule, "verbs": [each for each in rule["verbs"] if rule != taken or each != verb]} for rule in thing["rules"]]
            cluster.apply({**thing, "rules": [rule for rule in rules if rule["verbs"]]})


def test_a_right_that_is_missing_is_named_before_the_controller_starts(cluster: Cluster) -> None:
    """Each verb of each right in turn."""
    controller = Controller(cluster, 0, "--seldon")
    seldon = Install(seldon=True)

    async def told() -> None:
        api = Api(cluster.namespace, str(cluster.directory / f"{controller.name}.kubeconfig"))
        try:
            for right in [*rights_of(seldon), REVIEW]:
                for verb in right.verbs:
                    await asyncio.to_thread(_take_away, cluster, seldon, right, verb)
                    await _until_named(api, replace(seldon, namespace=cluster.namespace), right, verb)
            storage = Install(cluster.namespace, storage_secrets=True)
            await asyncio.to_thread(_take_away, cluster, storage, STORAGE_RIGHT, "get")
            await _until_named(api, storage, STORAGE_RIGHT, "get")
        finally:
            await api.close()

    asyncio.run(told())
    _take_away(cluster, seldon, REVIEW, "create")
    controller.start()
    cluster.until(lambda: not controller.running, 60, "it has ended")
    assert controller.stop() == WRONG_USE
    assert "create tokenreviews.authentication.k8s.io" in controller.log


async def _until_named(api: Api, which: Install, right: Right, verb: str) -> None:
    """Until nothing but this is missing, and told with what it is for: the API server hears of a change of a role a little later."""
    end, fault = time.monotonic() + 20, None
    while time.monotonic() < end:
        fault = await look(api, which)
        if fault is not None and [_words(*note) for note in fault.notes[:-1]] == [(verb, resource, right.why) for resource in right.resources]:
            return
    raise AssertionError(f"without {verb} {right} it says {fault}")


def _words(refused: str, why: str) -> tuple[str, str, str]:
    """`create leases.coordination.k8s.io` → create, leases."""
    verb, resource, *_ = refused.split()
    return verb, resource.partition(".")[0], why


def test_a_right_that_is_taken_away_later_is_missed_where_it_is_needed(cluster: Cluster) -> None:
    """And what was held up goes on when it is there again."""
    plain = {right.resources[0]: right for right in rights_of(Install())}
    cluster.up(server("triton"), model("m", models.quick(cluster.directory, "m")))
    triton = cluster.server("triton")

    _take_away(cluster, Install(), plain["statefulsets"], "patch")
    cluster.patch("Server", "triton", {"spec": {"replicas": 2}})
    cluster.until(lambda: "statefulsets" in triton.condition("Degraded")["message"], 30, "the Server says what is refused")
    assert triton.condition("Degraded")["reason"] == "Refused"

    _take_away(cluster, Install(), REVIEW, "create")
    cluster.until(lambda: cluster.pod("triton-1").ready, 40, "the StatefulSet has grown")
    cluster.until(lambda: "tokenreviews" in cluster.pod("triton-1").log(), 40, "the agent says why it is refused")

    _take_away(cluster, Install(), plain["models/status"], "patch")
    cluster.apply(model("n", models.quick(cluster.directory, "n")))
    controller = cluster.processes[0]
    cluster.until(lambda: "models" in controller.log and "forbidden" in controller.log, 40, "the controller says that it cannot write")
    assert not cluster.model("n").status

    _take_away(cluster, Install())
    cluster.until(lambda: triton.status.get("readyReplicas") == 2 and cluster.model("n").ready, 60, "all goes on")
    cluster.until(lambda: triton.condition("Degraded")["status"] == "False", 40, "and says so")
