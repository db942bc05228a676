"""Batches that cannot be put together, or whose outputs cannot be taken apart: their members are run alone, and the next batch is as any other."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running, wait_until
from tests.e2e.asking import ask, ask_together, binary, declared, oip, tensor

MINUTE = 'batch_policy = "timer"\nmax_batch_delay_ms = 60000'
ROWS = 25_000
"""Of four numbers, 400 kB."""

MODELS = f"""
[defaults]
idle_timeout_secs = 0
prepare = "off"
max_replicas = 1

[[models]]
id = "large"
path = "ident.onnx"
max_batch_size = {4 * ROWS}
{MINUTE}

[[models]]
id = "nonzero"
path = "disguised.onnx"
batching = "on"
max_batch_size = 3
{MINUTE}

[[models]]
id = "constout"
path = "constout.onnx"
batching = "on"
max_batch_size = 3
{MINUTE}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("batches")
    onnx_models.ident(directory / "ident.onnx")
    onnx_models.disguised_nonzero(directory / "disguised.onnx")
    onnx_models.constout(directory / "constout.onnx")
    (directory / "models.toml").write_text(MODELS)
    with running(directory, "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


@contextmanager
def small_files(daemon: Daemon, size: int) -> Iterator[None]:
    """The daemon can make no file larger than this, be it one in memory as those in which batches are put together."""
    before = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, before)


def runs(daemon: Daemon, model: str) -> int:
    return int(daemon.metric("wakeful_batch_rows_count", model=model))


def test_a_batch_that_cannot_be_put_together_is_run_one_by_one(daemon: Daemon) -> None:
    """C05, second round: there is room in shared memory for each of them and not for all; one that is too large alone fails alone."""
    daemon.wake("large")
    chunks = [bytes([number]) * 16 * ROWS for number in range(4)]
    asked = [binary("large", [declared("x", "FP32", ROWS, 4)], [chunk]) for chunk in chunks]
    with small_files(daemon, 1 << 20):
        answers = ask_together(daemon, asked)
        assert [answer.body[answer.json_length :] for answer in answers] == chunks
        assert runs(daemon, "large") == 4
        wait_until(lambda: "a batch could not be collated" in daemon.log, "the log tells of it")
        refused = ask(daemon, binary("large", [declared("x", "FP32", 4 * ROWS, 4)], [b"".join(chunks)]))
        assert (refused.status, "could not be put together" in refused.json["error"]) == (500, True)
    answers = ask_together(daemon, asked)
    assert [answer.body[answer.json_length :] for answer in answers] == chunks
    assert runs(daemon, "large") == 5


def test_outputs_of_other_rows_than_went_in_are_not_cut_by_guess(daemon: Daemon) -> None:
    """C01, C02: by the owner's word these merge, which the models belie. Told in the log, and each caller gets what it gets alone."""
    daemon.wake("nonzero")
    daemon.wake("constout")
    found = ask_together(daemon, [oip("nonzero", tensor("x", [1], [value])) for value in (5, 0, 7)])
    assert [(answer.output(), answer.json["outputs"][0]["shape"]) for answer in found] == [([0], [1, 1]), ([], [0, 1]), ([0], [1, 1])]
    pairs = ask_together(daemon, [oip("constout", tensor("x", [1, 1], [value])) for value in (5, 6, 7)])
    assert [(answer.output("y"), answer.output("c")) for answer in pairs] == [([value], [1, 2]) for value in (5, 6, 7)]
    for shape, model in (([2, 1], "nonzero"), ([2], "constout")):
        assert runs(daemon, model) == 4, "one of all three, and one of each"
        told = f"has shape {shape} for a batch of 3 rows, so it cannot be cut by rows"
        wait_until(lambda told=told: told in daemon.log, "the log tells of it")
