"""What is promised where: bytes and load of all models that a server replica has, as sums of placements × footprints.

Nothing here is what a replica reports to be free: two reports may count a model twice or not at all, and a difference of unsigned numbers has already
shown somebody 16 EiB of memory. Sums are signed; below zero is a finding, not an accident.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

SESSION = 16 * 1024**2
"""Bytes that a model is taken to need in memory beside its files, as long as nobody has measured or declared them."""


class Weight(NamedTuple):
    """What one copy of a model counts for."""

    footprint: int
    active: bool
    """It was used within its inactive window, or is about to be: its bytes cannot be lent to another."""
    load: float
    """Busy share that one copy is expected to bring."""


WEIGHTLESS = Weight(0, False, 0.0)


@dataclass(slots=True)
class Account:
    """The sums of one replica."""

    registered: int = 0
    active: int = 0
    load: float = 0.0

    def add(self, weight: Weight, copies: int = 1) -> None:
        """Charge copies of a model; a negative number gives them back."""
        self.registered += copies * weight.footprint
        if weight.active:
            self.active += copies * weight.footprint
        self.load += copies * weight.load


def footprint(measured: int, declared: int | None, artifact_bytes: int) -> int:
    """Bytes of one copy: as a daemon measured them, else as it is declared, else by the size of the files: once more while they are unpacked."""
    return measured or declared or 2 * artifact_bytes + SESSION


class Ledger:
    """The accounts of all replicas, kept up to date model by model."""

    __slots__ = ("_accounts", "_holders", "_weights")

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._weights: dict[str, Weight] = {}
        self._holders: dict[str, frozenset[str]] = {}

    def __contains__(self, model: str) -> bool:
        """Was it ever weighed?"""
        return model in self._weights

    def __len__(self) -> int:
        """Models that were weighed and not forgotten."""
        return len(self._weights)

    def weight(self, model: str) -> Weight:
        return self._weights.get(model, WEIGHTLESS)

    def weigh(self, model: str, weight: Weight, holders: Collection[str]) -> None:
        """From now on the model has this weight on these replicas and on no other; the same thing twice changes nothing."""
        before, had = self._weights.get(model, WEIGHTLESS), self._holders.get(model, frozenset())
        has = frozenset(holders)
        if before == weight and had == has:
            return
        for uid in had:
            account = self._accounts[uid]
            account.add(before, -1)
            if not account.registered:
                del self._accounts[uid]  # pods come and go; and what was left of adding and taking fractions goes with it
        for uid in has:
            self._accounts.setdefault(uid, Account()).add(weight)
        self._weights[model], self._holders[model] = weight, has

    def forget(self, model: str) -> None:
        """It is nowhere any more."""
        self.weigh(model, WEIGHTLESS, ())
        self._weights.pop(model, None)
        self._holders.pop(model, None)

    def accounts(self) -> dict[str, Account]:
        """Copies, to try things on."""
        return {uid: Account(account.registered, account.active, account.load) for uid, account in self._accounts.items()}
