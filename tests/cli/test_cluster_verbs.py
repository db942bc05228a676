"""What `wakeful cluster models` and `explain` make of objects. That they can read them: tests/cluster/scenarios/test_verbs.py."""

from typing import Any

import pytest

from wakeful.cli.cluster_explain import ago, event_rows, explained, server_line
from wakeful.cli.cluster_models import HEAD, UNSEEN, row, table, why
from wakeful.cli.main import main

NOW = 1_800_000_000.0
MINUTE_AGO = "2027-01-15T07:59:00Z"


def a_condition(kind: str, holds: bool, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": str(holds), "reason": reason, "message": message, "lastTransitionTime": MINUTE_AGO}


GOOD = (
    a_condition("Ready", True, "Available", "2 of 2 replicas serve"), a_condition("Placed", True, "Placed", "all 2 replicas"),
    a_condition("Scaling", False, "Off", "the count is fixed"), a_condition("ConfigValid", True, "Valid", "everything has its effect"),
)


def a_model(*other: dict[str, Any], spec: dict[str, Any] | None = None, generation: int = 1, **status: Any) -> dict[str, Any]:
    """One that is as it should be, but for the conditions in `other`."""
    replaced = {one["type"] for one in other}
    conditions = [*(one for one in GOOD if one["type"] not in replaced), *other]
    return {
        "metadata": {"name": "fraud", "uid": "m1", "generation": generation}, "spec": {"storageUri": "s3://models/fraud", **(spec or {})},
        "status": {
            "observedGeneration": 1, "state": "Available", "desiredReplicas": 2, "availableReplicas": 2, "server": "triton", "conditions": conditions,
            **status,
        },
    }


def a_server(name: str = "triton", capabilities: list[str] | None = None, *other: dict[str, Any], **status: Any) -> dict[str, Any]:
    conditions = [a_condition("Ready", True, "Available", "2 of 2 pods are ready"), *other]
    spec = {} if capabilities is None else {"capabilities": capabilities}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions, **status}}


# ── the list ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_a_model_that_is_as_it_should_be_nothing_is_to_be_said() -> None:
    assert row(a_model()) == ("fraud", "True", "Available", "2", "2", "triton", "")


NOT_READY = a_condition("Ready", False, "LoadFailed", "on triton-0: no such file")
NOT_PLACED = a_condition("Placed", False, "NoRoom", "triton: memory on 2 of 2 replicas")


@pytest.mark.parametrize(("conditions", "said"), [
    ((NOT_READY, NOT_PLACED), "on triton-0: no such file"),
    ((a_condition("Ready", False, "NotPlaced", "triton: memory on 2 of 2 replicas"), NOT_PLACED), "triton: memory on 2 of 2 replicas"),
    ((NOT_PLACED,), "triton: memory on 2 of 2 replicas"),
    ((a_condition("Ready", True, "RevisionFailed", "r2 failed; r1 serves on"),), "r2 failed; r1 serves on"),
    ((a_condition("Scaling", False, "Limited", "memory on 2 of 2"),), "memory on 2 of 2"),
    ((a_condition("ConfigValid", True, "PartlyOfNoEffect", "spec.logger: not supported"), NOT_PLACED), "spec.logger: not supported"),
])
def test_the_worst_is_said_first(conditions: tuple[dict[str, Any], ...], said: str) -> None:
    assert why(a_model(*conditions)) == said


def test_a_change_that_was_not_looked_at_and_a_model_that_was_not() -> None:
    assert why(a_model(generation=2)) == "its latest change (generation 2) has not been looked at yet"
    new = {"metadata": {"name": "new", "generation": 1}, "spec": {"storageUri": "s3://models/new"}}
    assert row(new) == ("new", "Unknown", "", "", "", "", UNSEEN)
    assert UNSEEN in explained(new, [], [], NOW)


def test_columns_line_up_and_only_reasons_are_cut() -> None:
    rows = [HEAD, row(a_model(NOT_PLACED)), row(a_model())]
    whole = table(rows).splitlines()
    assert whole == [
        "NAME    READY   STATE       DESIRED   AVAILABLE   SERVER   WHY",
        "fraud   True    Available   2         2           triton   triton: memory on 2 of 2 replicas",
        "fraud   True    Available   2         2           triton",
    ]
    assert table(rows, 72).splitlines()[1] == "fraud   True    Available   2         2           triton   triton: memo…"
    assert table([("a\n b", "c")]) == "a b   c"


# ── one model ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_everything_about_a_model_on_one_page() -> None:
    model = a_model(
        NOT_PLACED, spec={
            "memory": "100Ki", "requirements": ["tensorflow"], "replicas": 1, "minReplicas": 1, "autoscaling": {"lagThreshold": 10}},
        desiredReplicas=3, artifact={"revision": "sha256:ab", "bytes": 5 << 20, "footprintBytes": 64 << 20},
        scaling={"owner": "Scheduler", "target": 3, "fromSpec": "1", "lastStepTime": MINUTE_AGO, "lastStep": "1 to 3: lag 41"},
        placements=[
            {"replica": "triton-0", "uid": "u0", "state": "Loading", "revision": "r2", "previous": "r1", "since": MINUTE_AGO},
            {"replica": "triton-1", "uid": "u1", "state": "Failed", "tries": 2, "error": "out of memory", "since": MINUTE_AGO},
        ],
    )
    servers = [a_server(memory={"capacityBytes": 2 << 30, "registeredBytes": 1 << 30, "activeBytes": 1 << 20}), a_server("sklearn", ["sklearn"])]
    servers[0]["spec"]["modelAutoscaling"] = {"inactiveSeconds": 60}
    events = [{
        "involvedObject": {"kind": "Model", "name": "fraud", "uid": "m1"}, "type": "Warning", "reason": "NoRoom", "message": "memory", "count": 3,
        "lastTimestamp": MINUTE_AGO,
    }]
    assert explained(model, servers, events, NOW) == """\
fraud: Available, 2 of 3 serve on triton

  from        s3://models/fraud
  artifact    5.0 MiB, sha256:ab
  memory      64 MiB measured, 100Ki declared
  requires    tensorflow
  count       3, by load, between the bounds; the manifest says replicas 1, minReplicas 1
  last step   1m 00s ago: 1 to 3: lag 41
  thresholds  lagThreshold 10, inactiveSeconds 60, stableSeconds 300, upCooldownSeconds 15, downWindowSeconds 300, maxStepPercent 100, \
busyPercent 60, holdSeconds 60

conditions
  Ready        True   Available  2 of 2 replicas serve
  Scaling      False  Off        the count is fixed
  ConfigValid  True   Valid      everything has its effect
  Placed       False  NoRoom     triton: memory on 2 of 2 replicas

copies
  triton-0  Loading  1m 00s ago  revision r2, r1 serves meanwhile
  triton-1  Failed   1m 00s ago  2 tries failed, out of memory

servers
  sklearn  not for it, since it has not tensorflow; 2 of 2 pods are ready
  triton   2 of 2 pods are ready; of 2.0 GiB for models 1.0 GiB are registered and 1.0 MiB in use

events
  1m 00s ago  x3  Warning  NoRoom  memory"""


def test_servers_that_are_not_for_it_say_why() -> None:
    assert server_line(a_model(spec={"server": "other"}), a_server()) == "not for it, since the Model is pinned to other; 2 of 2 pods are ready"
    lost = a_condition("Degraded", True, "NodeLost", "triton-1: the node does not answer")
    assert server_line(a_model(), a_server("triton", None, lost)) == "2 of 2 pods are ready; degraded: triton-1: the node does not answer"
    assert server_line(a_model(), {"metadata": {"name": "new"}}) == "no controller has looked at it"


def test_events_are_of_this_model_in_this_life() -> None:
    subjects = [{"kind": "Model", "name": "fraud", "uid": "m0"}, {"kind": "Server", "name": "fraud"}, {"kind": "Model", "name": "churn"}]
    assert event_rows(a_model(), [{"involvedObject": subject} for subject in subjects], NOW) == []


def test_times_are_ages() -> None:
    assert ago(MINUTE_AGO, NOW) == "1m 00s ago"
    assert ago("2027-01-15T08:00:05Z", NOW) == "0 s ago"  # of a clock that is ahead
    assert ago(None, NOW) == ""


# ── without a cluster ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_help_and_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "--help"], 0.0) == 0
    assert "wakeful cluster explain" in capsys.readouterr().out
    assert main(["cluster"], 0.0) == 2
    assert main(["cluster", "modles"], 0.0) == 2
    assert "error: wakeful cluster has no verb modles\n  hint: did you mean models?\n" in capsys.readouterr().err
    assert main(["cluster", "xyzzy"], 0.0) == 2
    assert "error: wakeful cluster has no verb xyzzy\n  hint: there are " in capsys.readouterr().err


def test_no_cluster_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "models", "--kubeconfig", "/nowhere/kubeconfig"], 0.0) == 2
    assert "error: no cluster is known: " in capsys.readouterr().err
