"""Many models on a real daemon whose budget is too small for them, the traffic to them, and what the daemon's log and metrics say of it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests import onnx_models
from tests.daemon import Daemon, running, wait_until

MIB = 1024 * 1024
SIZES = (2, 4, 8)
"""MiB of weights of the small models, in turn; and of a large one."""
LARGE = 32
GROWTH = 4 * MIB
"""What a replica may take more than was known when it was let in, before it is measured."""
LOADS_A_SECOND = 6
"""That the minimum residency allows at most, unless it is given."""
TIMEOUT = 120.0


class Case(NamedTuple):
    """What is tried. `fit`: how many of the models have room at the same time."""

    name: str
    models: int
    fit: int
    skewed: bool = False
    large: int = 0
    """Of the models, the last ones."""
    pinned: int = 0
    """The first ones."""
    never_idle: int = 0
    """The last ones: somebody asks them again as soon as they have answered."""
    clients: int = 6

    @property
    def ids(self) -> list[str]:
        return [f"m{number:02}" for number in range(self.models)]

    def size(self, number: int) -> int:
        return LARGE if number >= self.models - self.large else SIZES[number % len(SIZES)]

    @property
    def residency(self) -> float:
        return max(0.3, self.fit / LOADS_A_SECOND)

    @property
    def kept_busy(self) -> list[str]:
        return self.ids[len(self.ids) - self.never_idle:]


@dataclass
class Park:
    """Files, and a cache in which it is known what they take."""

    directory: Path
    bytes: dict[int, int] = field(default_factory=dict)
    """What a model of so many MiB of weights takes when it is loaded."""

    def measure(self) -> None:
        """Have each file loaded once without a budget, so that no guess decides later."""
        sizes = (*SIZES, LARGE)
        for size in sizes:
            onnx_models.weighty(self.directory / f"{size}.onnx", size)
        entries = "".join(f'[[models]]\nid = "{size}"\npath = "{size}.onnx"\n' for size in sizes)
        config = self.directory / "measure.toml"
        config.write_text('[defaults]\nprepare = "off"\n' + entries)
        with running(self.directory / "first", "--config", str(config), "--no-grpc") as daemon:
            for size in sizes:
                assert daemon.infer(str(size), "x", [1, 2, 3, 4], [1, 4])[0] == 200
            for size in sizes:
                daemon.wait_event("probe", str(size))
                wait_until(lambda size=size: size < self._resident(daemon, size) / MIB < size + 8, "it is measured")
                self.bytes[size] = self._resident(daemon, size)

    def _resident(self, daemon: Daemon, size: int) -> int:
        return int(daemon.metric("wakeful_resident_bytes", model=str(size)))

    def budget(self, case: Case) -> int:
        """Room for the largest ones that are to fit, but not for one more."""
        needs = sorted((self.bytes[case.size(number)] for number in range(case.models)), reverse=True)
        return sum(needs[: case.fit]) + min(needs) // 2

    @contextmanager
    def serving(self, directory: Path, case: Case) -> Iterator[Daemon]:
        entries = "".join(
            f'[[models]]\nid = "{model}"\npath = "{case.size(number)}.onnx"\npinned = {str(number < case.pinned).lower()}\n'
            for number, model in enumerate(case.ids)
        )
        config = self.directory / f"{case.name}.toml"
        config.write_text(
            f'[defaults]\nprepare = "off"\nmax_replicas = 1\nidle_timeout_secs = 0\nmin_residency_secs = {case.residency}\n'
            f'request_timeout_ms = {1000 * TIMEOUT}\nmemory_limit = {self.budget(case)}\n{entries}'
        )
        shutil.copytree(self.directory / "first" / "cache", directory / "cache")
        with running(directory, "--config", str(config), "--no-grpc", "--log-format", "json") as daemon:
            yield daemon
