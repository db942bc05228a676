"""A model's replicas as the memory supervisor sees them: what each needs, what it takes, and how it can be asked to go."""

from collections.abc import Callable
from typing import Protocol

from wakeful.config.kinds import KINDS
from wakeful.config.settings import ModelSettings
from wakeful.errors import OutOfMemory, WakefulError
from wakeful.memory.forecast import Forecast
from wakeful.memory.supervisor import Standing, Supervisor, Tenant
from wakeful.models.file import ModelFile
from wakeful.replicas.group import ReplicaGroup
from wakeful.replicas.replica import Replica
from wakeful.telemetry.units import show_bytes

COPY_SHARE = 8
"""A copy of a live replica whose like was never measured is taken for this part of the model's estimate; it touches few pages of its own."""


class Owner(Protocol):
    """What is needed of the model."""

    key: str
    pinned: bool
    settings: ModelSettings
    file: ModelFile
    group: ReplicaGroup

    def standing(self, replica: Replica) -> Standing: ...


class Tenancy:
    """One model's dealings with the supervisor. What the first replica holds is counted as shared, once for the model: copies share its pages, and
    replicas of a prepared copy share its mapped weights."""

    def __init__(self, model: Owner, supervisor: Supervisor) -> None:
        self._model = model
        self._supervisor = supervisor
        self._tenants: dict[int, Tenant] = {}
        """By replica number."""

    def admit(self, replica: Replica, granted: Callable[[], None], refused: Callable[[WakefulError], None]) -> None:
        """Ask for room for a replica that has no process yet."""
        model = self._model
        estimate, least = self._estimate(first=self._is_first(replica))
        limit = model.settings.runtime.memory_limit
        more = least if self._is_first(replica) else estimate
        if limit is not None and self._supervisor.resident_of(model.key) + more > limit:
            refused(OutOfMemory(f"model {model.key} would need {show_bytes(more)} more, over its memory_limit of {show_bytes(limit)}"))
            return
        tenant = self._tenants[replica.number] = Tenant(
            model.key, replica.index, estimate, least=least, primary=self._is_first(replica), granted=granted, refused=refused,
            evict=lambda reason: model.group.end(replica, reason), standing=lambda: model.standing(replica),
            counts=not KINDS[model.settings.backend].serves_models,
        )
        self._supervisor.admit(tenant)

    def forecast(self, now: float) -> Forecast:
        """What would happen if the model, which sleeps, were asked for."""
        model = self._model
        estimate, least = self._estimate(first=True)
        standing = Standing(now, idle=False, pinned=model.pinned, min_residency=model.settings.life.min_residency, loaded=False)
        newcomer = Tenant(
            model.key, 0, estimate, least=least, primary=True, granted=_nothing, refused=_nothing, evict=_nothing, standing=lambda: standing,
            counts=not KINDS[model.settings.backend].serves_models,
        )
        found = self._supervisor.forecast(newcomer, measured=bool(model.file.known().first_bytes))
        limit = model.settings.runtime.memory_limit
        if limit is not None and least > limit:
            return found._replace(refusal=f"it needs more than its memory_limit of {show_bytes(limit)}", evict=(), retry_in=None)
        return found

    def measured(self, replica: Replica) -> None:
        """A replica has told how much memory it holds; until then its estimate counts."""
        tenant = self._tenants.get(replica.number)
        if tenant is None:
            return
        own = replica.private_bytes
        if tenant.primary:
            together = own + replica.shared_bytes
            self._supervisor.measured(tenant, 0, together)
            self._model.file.learn(first_bytes=together)
        else:
            self._supervisor.measured(tenant, own, tenant.shared)
            self._model.file.learn(extra_bytes=own)

    def waited(self, replica: Replica) -> float:
        """Seconds that the replica waited for room."""
        tenant = self._tenants.get(replica.number)
        return 0.0 if tenant is None else tenant.waited

    def ready(self, replica: Replica) -> None:
        """Its minimum residency begins."""
        tenant = self._tenants.get(replica.number)
        if tenant is not None:
            if not tenant.primary:  # so that what they share is still counted when the first one is gone
                tenant.shared = self._supervisor.shared_of(self._model.key)
            self._supervisor.loaded_now(tenant)

    def release(self, replica: Replica) -> None:
        """The replica has gone, or is not started after all."""
        tenant = self._tenants.pop(replica.number, None)
        if tenant is not None:
            self._supervisor.release(tenant)

    def _is_first(self, replica: Replica) -> bool:
        return not any(other is not replica for other in self._model.group.replicas)

    def _estimate(self, *, first: bool) -> tuple[int, int]:
        """Bytes that a replica may take, and surely takes: as measured of this file before, else as declared, else guessed from its size."""
        file, known = self._model.file, self._model.file.known()
        if first or not any(other.forkable for other in self._model.group.ready()):
            least = file.size()  # whatever is declared
            measured, guess = known.first_bytes, max(self._model.settings.declared or file.estimate(), least)
        else:
            measured, guess, least = known.extra_bytes, file.estimate() // COPY_SHARE, 0
        return (measured, measured) if measured else (guess, least)


def _nothing(_: object = None) -> None:
    """Nobody waits for what is only thought of."""
