"""How a change of a Server's pods reaches them: one pod more first, then one after the other, then the one more goes.

A StatefulSet has no surge of its own: with one replica its update is an outage. So there is a pod of the new template before one of the old is
touched, and the pods of the old one have where to move their models to. The same when all pods leave for another reason, such as the drain of a node:
a StatefulSet replaces a pod only after it has gone.
"""

from collections.abc import Sequence
from typing import NamedTuple

from wakeful.cluster.planning.world import ServerSpec


class StsView(NamedTuple):
    """The StatefulSet as the API server has it. `template` is the digest that we wrote into its pods' labels."""

    template: str
    surging: bool = False
    """It has one pod more than it should, for a change of its template or for pods that leave."""


class PodView(NamedTuple):
    ordinal: int
    template: str
    ready: bool
    leaving: bool = False


class StsPatch(NamedTuple):
    replicas: int
    partition: int
    """Pods of this ordinal and above get the new template."""
    surging: bool = False


def rollout(server: ServerSpec, target: int, template: str, sts: StsView | None, pods: Sequence[PodView]) -> StsPatch:
    """What the StatefulSet is to say now, for `target` pods of `template`. Asked again whenever a pod changes.

    A surge that cannot become ready leaves the old pods as they are; a further change of the template takes its place.
    """
    settled = StsPatch(target, 0)
    if sts is None or target == 0 or not server.surge:
        return settled
    done = {pod.ordinal for pod in pods if pod.template == template and pod.ready and not pod.leaving}
    if all(ordinal in done for ordinal in range(target)):
        return settled
    changing = sts.template != template or any(pod.template != template and pod.ordinal < target for pod in pods)
    there = [pod for pod in pods if pod.ordinal < target]
    deserted = bool(there) and all(pod.leaving for pod in there)
    if not (changing or deserted or sts.surging):
        return settled
    return StsPatch(target + 1, 0 if target in done else target, True)
