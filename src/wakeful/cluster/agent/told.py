"""What the controller has been told, so that it is told only what has changed. Pure."""

from collections.abc import Mapping

from msgspec import structs

from wakeful.cluster.wire import HeldNow, Report, UseNow

NOISE = 0.05
"""Share by which a footprint may differ from what was told: processes grow and shrink by pages all the time."""


class Told:
    """Of one stream."""

    def __init__(self, held: Mapping[str, HeldNow], use: Mapping[str, UseNow]) -> None:
        self._held = dict(held)
        self._use = dict(use)
        self._seen = 0

    def news(self, held: Mapping[str, HeldNow | None], use: Mapping[str, UseNow], seen: int = 0) -> Report | None:
        """What of these models is not told yet, which counts as told from now on; None: nothing. A model without state is gone.

        `seen`: the version of what is to be here that these states are about.
        """
        changed = {name: now for name, now in held.items() if now is not None and _differs(self._held.get(name), now)}
        gone = [name for name, now in held.items() if now is None and name in self._held]
        used = {name: use[name] for name, now in held.items() if now is not None and name in use and use[name] != self._use.get(name)}
        if not changed and not gone and not used and seen == self._seen:
            return None
        before, self._seen = self._seen, seen
        self._held |= changed
        self._use |= used
        for name in gone:
            del self._held[name]
            self._use.pop(name, None)
        return Report(changed, gone, used, seen=seen if seen != before else None)


def _differs(told: HeldNow | None, now: HeldNow) -> bool:
    if told is None:
        return True
    about_the_same = abs(now.footprint - told.footprint) <= NOISE * told.footprint
    return now != (structs.replace(told, footprint=now.footprint) if about_the_same else told)
