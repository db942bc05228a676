"""What a backend is: it opens one model file and runs it. Lives in replica processes alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wakeful.runtime.messages import COLUMNS_LIMIT, Signature, TensorSpec


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to open a model."""

    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    threads: int = 1
    """Threads of one run; 1 means no pool at all, so that the process can be forked."""
    prepared: str = ""
    """Directory of the prepared copy; empty to open the file as it was shipped."""
    moved: bool = False
    """This process has gone over already to the interpreter and the environment that the model asks for."""


class Elsewhere(Exception):
    """Raised by who opens a model that asks for another interpreter, or an environment of its own: the process goes on there, as the same replica."""

    def __init__(self, python: str, env: Mapping[str, str]) -> None:
        super().__init__(python)
        self.python = python
        """The interpreter."""
        self.env = env
        """Variables beside those that are there."""


def told(columns: Iterable[str]) -> tuple[str, ...]:
    """Names of columns as a signature may have them; none where there is too much of them for a message."""
    names = tuple(columns)
    return names if sum(map(len, names)) <= COLUMNS_LIMIT else ()


class Plain:
    """A base for backends that open a file once and for all, run in the caller's thread on the CPU, and prepare nothing. They add `signature` and
    `run`."""

    signature: Signature
    device = "cpu"
    forkable = True
    prepared = False
    draft = False
    binary = False

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self.signature.outputs

    def improve(self) -> None:
        """There is no draft."""

    def settle(self) -> None:
        """There is no draft."""

    def close(self) -> None:
        """Nothing of it outlives its process."""


class Backend(Protocol):
    """One open model.

    `run` takes every input that the caller gave (a subset of the signature's inputs; optional ones may be missing) as little-endian, row-major
    arrays of the signature's type, and returns all outputs in the signature's order. It raises errors of `wakeful.errors`: InvalidInput where
    the model refused its input, OutOfMemory where an allocation failed, ExecutionFailed otherwise.
    """

    signature: Signature
    device: str
    prepared: bool
    draft: bool
    """It answers by something that was quick to open; `improve` replaces that by something that is quick to run."""
    binary: bool
    """BYTES are `bytes` for it, whatever they hold, and not text."""

    @property
    def forkable(self) -> bool:
        """May this process be copied now, as far as the model goes? Threads are looked at elsewhere."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What the last run gave: the signature's outputs, where it declares them."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]: ...

    def improve(self) -> None:
        """Begin to replace a draft, on a thread, unless that has begun. Runs go on meanwhile; nothing happens where there is no draft."""

    def settle(self) -> None:
        """Finish with that: afterwards there is no draft, and no thread beside the caller's."""

    def close(self) -> None:
        """The process is about to end: let go in good order of what would outlive it."""
