"""What the settings keep loaded is brought back after it was lost, after a pause that grows from loss to loss."""

import asyncio
from collections.abc import Callable

from wakeful.errors import WakefulError
from wakeful.models.backoff import Backoff


class Restoring:
    def __init__(self, restore: Callable[[], None]) -> None:
        self._restore = restore
        self._losses = Backoff()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def planned(self) -> bool:
        return self._timer is not None

    def lost(self, error: WakefulError, now: float) -> None:
        """A replica has died, or could not be added."""
        self.after(self._losses.failed(error, now))

    def after(self, pause: float) -> None:
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(pause, self._due)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget_losses(self) -> None:
        """The next one counts as the first."""
        self._losses.clear()

    def _due(self) -> None:
        self._timer = None
        self._restore()
