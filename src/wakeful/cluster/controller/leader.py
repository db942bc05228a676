"""All that a leader runs, in one TaskGroup: cancelled as one when the Lease is lost, and ended as one when a part of it fails."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

import grpc

from wakeful import clock
from wakeful.cluster.controller import tls
from wakeful.cluster.controller.agents import OPTIONS, Agents
from wakeful.cluster.controller.api import AUTOSCALER, MODEL, POD, SELDON_MODEL, SELDON_SERVER, SERVER, STATEFUL_SET, Api, Kind
from wakeful.cluster.controller.events import Events, Subject
from wakeful.cluster.controller.figures import Figures
from wakeful.cluster.controller.identity import Door, Identity, Office
from wakeful.cluster.controller.intake import Intake
from wakeful.cluster.controller.loop import Loop, Outlets
from wakeful.cluster.controller.metrics_api import MetricsApi
from wakeful.cluster.controller.metrics_values import answer
from wakeful.cluster.controller.objects import Objects
from wakeful.cluster.controller.reflector import Reflector
from wakeful.cluster.controller.settings import Settings
from wakeful.cluster.controller.storage_keys import StorageKeys
from wakeful.cluster.controller.telling import Neighbours, Telling
from wakeful.cluster.controller.wakes import Wakes
from wakeful.cluster.controller.writer import Key, Writer
from wakeful.cluster.controller.xds import Discovery
from wakeful.cluster.dialects import DIALECTS
from wakeful.cluster.groups import Dialect
from wakeful.cluster.manifests import CA
from wakeful.cluster.planning.effects import Note
from wakeful.cluster.planning.revisions import secrets_of
from wakeful.cluster.planning.status import SERVER_LABEL
from wakeful.cluster.planning.world import World

POLL = 1.0
"""Seconds between two looks at what the metrics show."""


class _Part(Protocol):
    async def run(self) -> None: ...


class Leader:
    """One time of leading: nothing of a former one is left."""

    def __init__(self, api: Api, settings: Settings, figures: Figures, epoch: int, may_write: Callable[[], bool]) -> None:
        self._api, self._settings, self._figures, self._may_write = api, settings, figures, may_write
        now = _clock()
        world = self._world = World()
        self._writer = Writer(api, self._status, may_write, figures.complain)
        dialects: list[Dialect] = ["wakeful", *(("seldon",) if settings.install.seldon else ())]
        readers = [DIALECTS[dialect] for dialect in dialects]
        self._intake = Intake(world, readers, self._writer, now)
        self._events = Events(api, settings.install.namespace, self._subject, now=now)
        self._discovery = Discovery(self._intake.touch, self._note, may_write)
        self._keys = StorageKeys(api, self._secret_changed, figures.complain)
        self._objects = Objects(api, world, self._intake, settings.install, may_write, figures.complain)
        wakes = Wakes(world, self._intake.woken, now)
        self._identity = Identity(api)
        self._agents = Agents(epoch, self._intake, wakes, self._identity.agent)
        neighbours = Neighbours(self._agents, self._discovery, self._keys, self._objects)
        self._telling = Telling(world, self._intake, self._writer, neighbours, now)
        values = partial(answer, world, dialects, settings.install.namespace)
        self._metrics = MetricsApi(api, settings.host, settings.install.namespace, lambda target: values(target, now()), figures.complain)
        outlets = Outlets(self._agents, self._discovery, self._writer, self._objects, self._note, self._telling, wakes)
        self._loop = Loop(world, self._intake, outlets, settings.limits, figures, now)

    @property
    def ready(self) -> bool:
        return self._loop.opened

    async def run(self) -> None:
        kinds = [MODEL, SERVER, *([SELDON_MODEL, SELDON_SERVER] if self._settings.install.seldon else []), AUTOSCALER]
        reflectors = [self._reflector(kind) for kind in kinds]
        reflectors += [self._reflector(kind, SERVER_LABEL) for kind in (POD, STATEFUL_SET)]
        pem = None if self._settings.insecure else await self._certificate()
        server = await self._serve(pem)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._open_to_the_end(server, pem))
            parts: tuple[_Part, ...] = (*reflectors, self._writer, self._events, self._objects, self._keys, self._discovery)
            for part in parts:
                tasks.create_task(part.run())
            tasks.create_task(self._count())
            if self._settings.install.custom_metrics:
                tasks.create_task(self._metrics.run())
            tasks.create_task(self._loop.run(reflectors))

    def _reflector(self, kind: Kind, label: str | None = None) -> Reflector:
        return Reflector(self._api, kind, self._intake, label, complain=self._figures.complain)

    async def _open_to_the_end(self, server: grpc.aio.Server, pem: tls.Pem | None) -> None:
        """Cancelled with the leader's other tasks, and not after the slowest of them: agents and gateways are to look for the next leader at once.

        And while it lasts, once there is another certificate: agents and gateways connect anew, and keep meanwhile what they have. gRPC can be given
        another one while it runs, and then crashes when somebody connects at that moment.
        """
        while True:
            try:
                if pem is None:
                    await server.wait_for_termination()
                else:
                    pem = await tls.another(pem, self._certificate, self._figures.complain)
            finally:
                await server.stop(0)
            server = await self._serve(pem)

    async def _serve(self, pem: tls.Pem | None) -> grpc.aio.Server:
        """Agents and gateways, on one port."""
        doors = () if pem is None else (Door(self._identity),)  # gateways show tokens over TLS alone
        server = grpc.aio.server(interceptors=(Office(self._may_write), *doors), options=OPTIONS)
        server.add_generic_rpc_handlers((self._agents,))
        self._discovery.add_to(server)
        address = f"{self._settings.host}:{self._settings.port}"
        if pem is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, pem.credentials())
        await server.start()
        return server

    async def _certificate(self) -> tls.Pem:
        files = self._settings.certificate
        if files is not None:
            return tls.Pem(files.certificate.read_bytes(), files.key.read_bytes(), b"")
        names = tls.names_of(self._settings.service, self._settings.install.namespace)
        return await tls.ensure(self._api, CA, names, datetime.fromtimestamp(clock.wall(), UTC))

    async def _count(self) -> None:
        figures = self._figures
        while True:
            figures.agents.set(self._agents.connected)
            figures.gateways.set(len(self._discovery.gateways))
            figures.written.set(self._writer.written)
            figures.write_failures.set(self._writer.failed)
            figures.waiting.set(self._writer.waiting)
            figures.stands(self._world)
            await asyncio.sleep(POLL)

    def _status(self, key: Key) -> dict[str, Any] | None:
        return self._telling.status(key)

    def _note(self, note: Note) -> None:
        self._figures.event(note)
        self._events.note(note)

    def _secret_changed(self, name: str) -> None:
        self._intake.touch([model for model, entry in self._world.models.items() if name in secrets_of(entry)])

    def _subject(self, note: Note) -> Subject | None:
        """The object that an event is to be seen at."""
        if note.kind == "Pod":
            uid = next((one.uid for one in self._world.replicas.values() if one.pod == note.name), "")
            return Subject("v1", "Pod", note.name, uid)
        kind = self._intake.kinds.get((note.kind, note.name))
        entries = self._world.models if note.kind == "Model" else self._world.servers
        if kind is None or (entry := entries.get(note.name)) is None:
            return None
        return Subject(kind.api_version, kind.kind, note.name, entry.spec.uid)


def _clock() -> clock.Clock:
    """Seconds since 1970 that never go back: the wall's at the start, and from then on a monotonic clock's."""
    ahead = clock.wall() - clock.monotonic()
    return lambda: ahead + clock.monotonic()
