"""Which revision of a model a copy gets: the spec's, or, where that is wrong or has failed, the one that serves.

So a drain, a lost replica or a step up while a roll has stopped does not load what is known to fail, and the model is not lost by it.
"""

from collections import Counter

from wakeful.cluster.planning.world import ModelEntry, ModelSpec, Placement, Source, State


def serves(model: ModelEntry) -> bool:
    """Is there a copy to which requests may go?"""
    return any(placement.state is State.ROUTED for placement in model.placements.values())


def served_by(placement: Placement) -> str:
    """The revision that answers requests at a routed copy."""
    return placement.previous or placement.revision


def source_of(model: ModelEntry, revision: str) -> Source | None:
    """What it is loaded from; None: nobody knows any more."""
    if revision == model.spec.revision:
        return model.spec.source._replace(artifact=model.artifact if model.resolved == revision else "")
    return model.sources.get(revision)


def secrets_of(model: ModelEntry) -> set[str]:
    """Names of those with the keys of its storage."""
    return {source.secret for source in (model.spec.source, *model.sources.values()) if source.secret is not None}


def respecify(model: ModelEntry, spec: ModelSpec) -> None:
    """Another spec. What copies have of the ones before can be loaded as long as a copy has it."""
    before = model.spec.revision
    if before != spec.revision:
        known = {**model.sources, before: source_of(model, before)}
        used = _used(model)
        model.sources = {revision: source for revision, source in known.items() if source and revision in used and revision != spec.revision}
    model.spec = spec


def stopped(model: ModelEntry) -> bool:
    """Is the spec's revision not to be loaded where another one serves?"""
    return bool(model.spec.errors) or model.revision_failed == model.spec.revision


def fallback(model: ModelEntry) -> str | None:
    """What new copies get in its place: what most copies serve, else what served last; None: no such revision is known."""
    served = Counter(served_by(placement) for placement in model.placements.values() if placement.state is State.ROUTED)
    usable = model.sources.keys() | ({model.spec.revision} - {model.revision_failed})
    if known := sorted(served.keys() & usable):
        return max(known, key=served.__getitem__)
    return next(reversed([*model.sources]), None)


def to_load(model: ModelEntry) -> str | None:
    """The revision of the next new copy; None: there is none that could be loaded. Where nothing serves, the one that has failed and the one that
    served before take turns."""
    if not stopped(model):
        return model.spec.revision
    other = fallback(model)
    if model.spec.errors:
        return other
    return model.spec.revision if other is None or (not serves(model) and model.failures % 2) else other


def welcome(model: ModelEntry) -> frozenset[str]:
    """Revisions that a copy may be on its way to, or have failed with."""
    other = fallback(model) if stopped(model) else None
    if other is None:
        return frozenset({model.spec.revision})
    return frozenset({other}) if model.spec.errors or serves(model) else frozenset({other, model.spec.revision})


def forget_failure(model: ModelEntry) -> None:
    """Of a revision that nobody asks for any more, or that has loaded everywhere after all."""
    revision = model.spec.revision
    if model.revision_failed != revision or {served_by(one) for one in model.placements.values() if one.state is State.ROUTED} == {revision}:
        model.revision_failed = ""


def forget_sources(model: ModelEntry) -> None:
    """Of revisions that no copy has, and none will get."""
    if model.sources and not stopped(model):
        used = _used(model)
        if not model.sources.keys() <= used:
            model.sources = {name: source for name, source in model.sources.items() if name in used}


def _used(model: ModelEntry) -> set[str]:
    """Revisions that copies have or had last."""
    kept = set(model.sources) if stopped(model) else set()
    return kept | {revision for one in model.placements.values() for revision in (one.revision, one.previous) if revision}
