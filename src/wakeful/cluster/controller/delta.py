"""What one Envoy has and wants to have: the incremental variant of Envoy's discovery protocol, without its messages.

https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#incremental-xds. One push of each kind is under way at a time, so that
what changes meanwhile goes together, and a slow Envoy never has a queue.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

Kind = Literal["clusters", "endpoints"]
KINDS: tuple[Kind, ...] = ("clusters", "endpoints")


class Resource(NamedTuple):
    version: str
    """A digest of what it says, so that a new leader has the same."""
    encoded: bytes


Catalog = Mapping[Kind, Mapping[str, Resource]]
"""What there is, by name."""


class Push(NamedTuple):
    kind: Kind
    nonce: str
    resources: dict[str, Resource]
    removed: list[str]


class _Feed:
    """One kind."""

    def __init__(self) -> None:
        self.asked = False
        self.known: dict[str, str] = {}
        """Versions that it has acknowledged, by name."""
        self.changed: set[str] = set()
        """Names to look at before the next push."""
        self.due = False
        """A push is owed even if there is nothing in it: the first answer ends Envoy's wait at its start."""
        self.under_way: Push | None = None

    def removes(self, name: str) -> bool:
        return self.under_way is not None and name in self.under_way.removed


class Client:
    """Requests in, pushes out. Clusters go to whoever asks for that kind; endpoints to who has asked for the cluster's."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._clusters, self._endpoints = _Feed(), _Feed()
        self._feeds: dict[Kind, _Feed] = {"clusters": self._clusters, "endpoints": self._endpoints}
        self._subscribed: set[str] = set()
        self._pushed = 0

    def asked(self, kind: Kind, subscribe: Iterable[str], unsubscribe: Iterable[str], has: Mapping[str, str]) -> bool:
        """A request that answers no push. `has`: versions from an earlier stream, in its first request. Is that all known of this client now?

        One that has clusters says in its next request what endpoints it has.
        """
        feed = self._feeds[kind]
        first, feed.asked = not feed.asked, True
        if first:
            feed.known = dict(has)
        if kind == "clusters":
            if first:
                feed.due, feed.changed = True, {*has, *self._catalog[kind]}
            return first and not has
        subscribe, unsubscribe = set(subscribe), set(unsubscribe)
        self._subscribed = self._subscribed - unsubscribe | subscribe
        for name in (unsubscribe | subscribe) - (set(has) if first else set()):  # who subscribes anew has forgotten it
            feed.known.pop(name, None)
            if feed.under_way is not None:
                feed.under_way.resources.pop(name, None)
        feed.changed |= subscribe
        return first

    def changed(self, names: Iterable[str]) -> None:
        """These became others, came or went in the catalog."""
        for feed in self._feeds.values():
            feed.changed |= set(names)

    def pushes(self) -> Iterator[Push]:
        """What may be sent now. It counts as sent."""
        for kind, feed in self._feeds.items():
            if feed.under_way is not None or not feed.asked:
                continue
            resources, removed = self._look(kind, feed)
            if resources or removed or feed.due:
                self._pushed, feed.due = self._pushed + 1, False
                feed.under_way = Push(kind, str(self._pushed), resources, removed)
                yield feed.under_way

    def _look(self, kind: Kind, feed: _Feed) -> tuple[dict[str, Resource], list[str]]:
        """What has changed for this client. Endpoints go with their cluster, and are not removed alone; while it goes they are not sent."""
        resources, removed, later = {}, [], set()
        for name in feed.changed:
            resource = self._catalog[kind].get(name)
            if kind == "endpoints":
                if self._clusters.removes(name):
                    later.add(name)
                if resource is None or name not in self._subscribed or name in later:
                    continue
            if resource is None:
                removed += [name] if name in feed.known else []
            elif feed.known.get(name) != resource.version:
                resources[name] = resource
        feed.changed = later
        return resources, removed

    def answered(self, nonce: str, refused: bool) -> Push | None:
        """The push that a nonce belongs to; None for an old one. One that was refused is to be tried again."""
        for feed in self._feeds.values():
            push = feed.under_way
            if push is None or push.nonce != nonce:
                continue
            feed.under_way = None
            if not refused:
                for name in push.removed:
                    self._forget(name)
                feed.known.update((name, resource.version) for name, resource in push.resources.items())
            return push
        return None

    def again(self, push: Push) -> None:
        """After a refusal: send what is wanted by now of the same names."""
        feed = self._feeds[push.kind]
        feed.changed |= {*push.resources, *push.removed}
        for name in push.resources:
            feed.known.pop(name, None)

    def endpoints(self, name: str) -> str | None:
        """Version of a cluster's endpoints; None unless both the cluster and they are acknowledged. Envoy acknowledges a new cluster only when it
        has its endpoints."""
        return self._endpoints.known.get(name) if name in self._clusters.known else None

    def _forget(self, name: str) -> None:
        """The cluster is gone. When it comes again Envoy will ask for its endpoints anew."""
        self._clusters.known.pop(name, None)
        self._endpoints.known.pop(name, None)
        self._subscribed.discard(name)
