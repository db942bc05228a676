"""What the controller wants of this daemon, as far as it was heard. Pure: messages in, what has changed out."""

from enum import StrEnum

from wakeful.cluster.wire import PROTOCOL, Adopt, Desired, Wanted


class Heard(StrEnum):
    """What became of a message."""

    OBEYED = "obeyed"
    OUTDATED = "outdated"
    """It comes from one who leads no more."""
    MISSED = "missed"
    """It is a change of something that was never heard: it takes another Hello."""


class Orders:
    """`models` is what is to be here. It outlives streams, and with the disk's help the process."""

    def __init__(self, models: dict[str, Wanted] | None = None, epoch: int = 0) -> None:
        self.models = models or {}
        self.epoch = epoch
        """The highest that was obeyed."""
        self.known = models is not None
        """Has anybody ever said what is to be here?"""
        self._version: int | None = None
        """Of this stream."""

    @property
    def seen(self) -> int:
        """The version that was obeyed; 0: none yet on this stream."""
        return self._version or 0

    def adopt(self, message: Adopt) -> str:
        """A stream begins. Returns why its controller is not obeyed; empty: it is."""
        self._version = None
        if message.epoch < self.epoch:
            return f"it leads by epoch {message.epoch}, and {self.epoch} was obeyed before"
        if abs(message.protocol - PROTOCOL) > 1:
            return f"it speaks version {message.protocol} of the protocol, and this daemon {PROTOCOL}"
        self.epoch = message.epoch
        return ""

    def hear(self, message: Desired) -> Heard:
        if message.epoch < self.epoch:
            return Heard.OUTDATED
        if message.base and message.base != self._version:
            self._version = None
            return Heard.MISSED
        if not message.base:
            self.models = {}
        self.models = {name: wanted for name, wanted in (self.models | message.models).items() if name not in message.gone}
        self._version, self.epoch, self.known = message.version, message.epoch, True
        return Heard.OBEYED
