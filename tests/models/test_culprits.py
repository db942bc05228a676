"""What ended a process is refused for a while, and nothing else is."""

import numpy as np
import pytest

from tests.clock import Clock
from wakeful.errors import ExecutionFailed
from wakeful.inference import InferRequest
from wakeful.models import culprits
from wakeful.models.culprits import MOST, SECONDS, Culprits
from wakeful.tensors import Tensor


def request(*numbers: float, name: str = "x") -> InferRequest:
    return InferRequest("m", [Tensor(name, "FP32", (1, len(numbers)), np.array(numbers, "<f4").tobytes())], 0.0)


def refused(known: Culprits, asked: InferRequest) -> bool:
    try:
        known.check(asked)
    except ExecutionFailed as error:
        return "SIGFPE" in error.message and not error.unstarted  # else a gateway would try it on the other replicas
    return False


def test_the_same_numbers_under_the_same_name_and_nothing_else() -> None:
    known = Culprits()
    assert not known
    known.add(request(1, 2), "SIGFPE")
    assert known
    assert refused(known, request(1, 2))
    assert not any(refused(known, other) for other in (request(2, 1), request(1, 2, 0), request(1, 2, name="y")))


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(culprits, "monotonic", clock)
    known = Culprits()
    known.add(request(1), "SIGFPE")
    clock.time += SECONDS - 1
    assert refused(known, request(1))
    clock.time += 1
    assert not refused(known, request(1))
    assert not known


def test_not_without_end() -> None:
    known = Culprits()
    for number in range(MOST + 1):
        known.add(request(number), "SIGFPE")
    assert not refused(known, request(0))
    assert all(refused(known, request(number)) for number in range(1, MOST + 1))
    known.clear()
    assert not known
