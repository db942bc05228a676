"""The self-test of a model that is awake, by a process that no request waits for."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from wakeful.errors import WakefulError
from wakeful.models.errand import Errand
from wakeful.replicas.replica import Replica, State
from wakeful.runtime.messages import Probed
from wakeful.runtime.processes import Processes

SECONDS = 60.0
"""Longest wait for a self-test."""
NICE = 5
"""A third of the weight of a process that serves. With the lowest priority, cores that are busy with requests run one by one would leave the test
that ends this nothing for seconds."""


class Probing:
    """At most one test at a time. `done` hears the result, or why there is none."""

    def __init__(
        self,
        processes: Processes,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        done: Callable[[Replica, Probed | str], None],
    ) -> None:
        self.under_way = False
        self.holds_replica = False
        """True while the replica itself takes the test and cannot run anything."""
        self.identity = ""
        """Of the file that is tested, or was tested last: by the time of the result it may be another one."""
        self._processes = processes
        self._spawn = spawn
        self._done = done

    def start(self, replica: Replica, identity: str) -> None:
        """The test may take seconds, so a copy of the replica takes it, while requests run one by one; where none can be made, it does so itself."""
        if self.under_way:
            return
        self.under_way, self.identity = True, identity
        if replica.forkable:
            self._spawn(self._by_copy(replica))
        else:
            self._by_itself(replica)

    def _by_itself(self, replica: Replica) -> None:
        """The order is sent behind the first run of those who waited for the load."""
        self.holds_replica = True
        asyncio.get_running_loop().call_soon(replica.probe)

    def ended(self, replica: Replica, result: Probed | str) -> None:
        """The test is over; a replica that took it itself says so, or has died."""
        if self.under_way:
            self.under_way = self.holds_replica = False
            self._done(replica, result)

    async def _by_copy(self, replica: Replica) -> None:
        try:
            errand = Errand.copied(self._processes, replica)
        except WakefulError as error:
            self.ended(replica, error.message)
            return
        try:
            await errand.answer(None, SECONDS)
            errand.humble(NICE)
            probed = await errand.answer(errand.replica.probe, SECONDS)
            assert isinstance(probed, Probed)
            self.ended(replica, probed)
        except WakefulError as error:
            if errand.replica.pid or replica.state is not State.READY:
                self.ended(replica, error.message)
            else:  # there was no copy: its first runs have made it one that must not be copied
                self._by_itself(replica)
        except TimeoutError:
            self.ended(replica, f"it took longer than {SECONDS:g} s")
        finally:
            errand.end()
