"""Requests of unequal length share a run, of any model and any datatype: the server fills up, makes the mask, and cuts back."""

from collections.abc import Iterator

import pytest

from tests import onnx_models
from tests.daemon import Daemon, running
from tests.e2e.asking import Answer, Question, ask, ask_together, oip, tensor

DATATYPES: dict[str, list[object]] = {"INT64": [7, 8, 9], "FP32": [0.5, -1.5, 2.5], "BOOL": [True, True, False], "BYTES": ["a", "", "ccc"]}
MASKS = ("INT64", "INT32", "FP32", "BOOL")
PAD = 'batch_policy = "timer"\nmax_batch_size = 3\nmax_batch_delay_ms = 60000\npad = { axis = 1, value = 0, mask = "mask", buckets = [4, 8] }'
"""Only three rows make a run."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("padding")
    names = [f"{datatype}-{mask}" for datatype in DATATYPES for mask in MASKS]
    for name in names:
        onnx_models.measured(directory / f"{name}.onnx", *name.split("-"))
    tables = "".join(f'[[models]]\nid = "{name}"\npath = "{name}.onnx"\n{PAD}\n' for name in names)
    (directory / "models.toml").write_text(tables)
    with running(directory / "daemon", "--config", str(directory / "models.toml"), "--no-grpc") as daemon:
        yield daemon


def question(model: str, *rows: list[object]) -> Question:
    datatype = model.partition("-")[0]
    return oip(model, tensor("x", [len(rows), len(rows[0])], [element for row in rows for element in row], datatype))


def seen(answer: Answer) -> tuple[object, object, object]:
    assert answer.status == 200, answer
    return answer.output("y"), answer.output("width"), answer.output("real")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("datatype", DATATYPES)
def test_rows_of_unequal_length_share_a_run_and_a_bucket(daemon: Daemon, datatype: str, mask: str) -> None:
    model, row = f"{datatype}-{mask}", DATATYPES[datatype]
    assert daemon.call("POST", f"/v2/repository/models/{model}/load")[0] == 200
    before = daemon.metric("wakeful_batch_rows_count", model=model)
    answers = ask_together(daemon, [question(model, row[:2]), question(model, row), question(model, row[:1])])
    assert [seen(answer) for answer in answers] == [(row[:2], [4], [2]), (row, [4], [3]), (row[:1], [4], [1])]
    assert daemon.metric("wakeful_batch_rows_count", model=model) == before + 1


@pytest.mark.parametrize(("length", "width"), [(1, 4), (4, 4), (5, 8), (9, 9)])
def test_a_lone_request_is_filled_up_to_its_bucket_and_a_longer_one_stays(daemon: Daemon, length: int, width: int) -> None:
    rows: list[list[object]] = [[row] * length for row in range(3)]
    assert seen(ask(daemon, question("INT64-INT64", *rows))) == ([element for row in rows for element in row], [width] * 3, [length] * 3)
