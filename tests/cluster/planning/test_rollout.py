"""A change of a Server's pods: played against a StatefulSet controller that replaces one pod at a time, the highest ordinal first."""

import pytest

from wakeful.cluster.planning.rollout import PodView, StsPatch, StsView, rollout
from wakeful.cluster.planning.world import ServerSpec

SERVER = ServerSpec("triton")


def ready(*templates: str) -> list[PodView]:
    return [PodView(ordinal, template, True) for ordinal, template in enumerate(templates)]


def test_nothing_to_do() -> None:
    assert rollout(SERVER, 2, "a", None, []) == StsPatch(2, 0)
    assert rollout(SERVER, 2, "a", StsView("a"), ready("a", "a")) == StsPatch(2, 0)
    assert rollout(SERVER, 5, "a", StsView("a"), ready("a", "a")) == StsPatch(5, 0)


def test_a_pod_that_is_not_ready_is_no_reason_for_one_more() -> None:
    assert rollout(SERVER, 2, "a", StsView("a"), [PodView(0, "a", True), PodView(1, "a", False)]) == StsPatch(2, 0)


def test_first_one_more() -> None:
    assert rollout(SERVER, 1, "b", StsView("a"), ready("a")) == StsPatch(2, 1, True)
    assert rollout(SERVER, 1, "b", StsView("b", True), [PodView(0, "a", True), PodView(1, "b", False)]) == StsPatch(2, 1, True)


def test_then_the_others() -> None:
    assert rollout(SERVER, 1, "b", StsView("b", True), ready("a", "b")) == StsPatch(2, 0, True)


def test_the_one_more_stays_until_all_others_are_ready() -> None:
    starting = [PodView(0, "b", False), PodView(1, "b", True)]

    assert rollout(SERVER, 1, "b", StsView("b", True), starting) == StsPatch(2, 0, True)
    assert rollout(SERVER, 1, "b", StsView("b", True), ready("b", "b")) == StsPatch(1, 0)


def test_one_more_where_all_pods_leave() -> None:
    leaving = PodView(0, "a", True, leaving=True)

    assert rollout(SERVER, 1, "a", StsView("a"), [leaving]) == StsPatch(2, 1, True)
    assert rollout(SERVER, 1, "a", StsView("a", True), [leaving, PodView(1, "a", True)]) == StsPatch(2, 0, True)
    assert rollout(SERVER, 1, "a", StsView("a", True), [PodView(1, "a", True)]) == StsPatch(2, 0, True)
    assert rollout(SERVER, 1, "a", StsView("a", True), ready("a", "a")) == StsPatch(1, 0)
    assert rollout(SERVER, 2, "a", StsView("a"), [leaving, PodView(1, "a", True)]) == StsPatch(2, 0)
    assert rollout(ServerSpec("triton", surge=0), 1, "a", StsView("a"), [leaving]) == StsPatch(1, 0)


def test_a_change_in_the_middle_of_a_change() -> None:
    """The broken surge pod is the first to be replaced; the old ones are not touched."""
    assert rollout(SERVER, 2, "c", StsView("b", True), [*ready("a", "a"), PodView(2, "b", False)]) == StsPatch(3, 2, True)


def test_taking_a_change_back() -> None:
    assert rollout(SERVER, 2, "a", StsView("b", True), [*ready("a", "a"), PodView(2, "b", False)]) == StsPatch(2, 0)


def test_without_surge_and_without_pods() -> None:
    assert rollout(ServerSpec("triton", surge=0), 2, "b", StsView("a"), ready("a", "a")) == StsPatch(2, 0)
    assert rollout(SERVER, 0, "b", StsView("a"), []) == StsPatch(0, 0)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_whole_rollout_is_never_below_its_count(count: int) -> None:
    pods = {ordinal: PodView(ordinal, "a", True) for ordinal in range(count)}
    sts, steps = StsView("a"), 0
    while True:
        patch = rollout(SERVER, count, "b", sts, list(pods.values()))
        if patch == StsPatch(count, 0) and sts.template == "b":
            break
        sts = StsView("b", patch.surging)
        pods = _controller_step(pods, patch)
        steps += 1
        assert sum(pod.ready for pod in pods.values()) >= count
        assert steps < 10 * count
    assert {pods[ordinal].template for ordinal in range(count)} == {"b"}


def _controller_step(pods: dict[int, PodView], patch: StsPatch) -> dict[int, PodView]:
    """One thing of what a StatefulSet's controller does: a starting pod becomes ready, a missing one starts, or an old one goes."""
    for ordinal in range(patch.replicas):
        if ordinal not in pods:
            return pods | {ordinal: PodView(ordinal, "b" if ordinal >= patch.partition else "a", False)}
        if not pods[ordinal].ready:
            return pods | {ordinal: pods[ordinal]._replace(ready=True)}
    old = [ordinal for ordinal in pods if ordinal >= patch.partition and pods[ordinal].template != "b"]
    return {ordinal: pod for ordinal, pod in pods.items() if not old or ordinal != max(old)}
