"""The golden rule, with whatever hypothesis comes up with: an answer in company is the answer alone, to the byte (C01, C02, C05, C09, C10)."""

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import onnx_models
from tests.daemon import Daemon, running
from tests.e2e.asking import Answer, Question, ask, ask_together, binary, declared
from wakeful.tensors import DTYPES, encode_strings

TYPED = ("BOOL", "UINT8", "INT16", "INT64", "UINT64", "FP16", "BF16", "FP32", "FP64")

CONFIG = """
[defaults]
batch_policy = "timer"
max_batch_size = 6
max_batch_delay_ms = 5
max_replicas = 2
autoscale_queue_threshold = 2
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("golden")
    models = directory / "models"
    models.mkdir()
    for make in (onnx_models.constout, onnx_models.identdyn, onnx_models.masked, onnx_models.strid, onnx_models.two_inputs, onnx_models.two_outputs):
        make(models / f"{make.__name__}.onnx")
    onnx_models.gather10(models / "gather10.onnx")
    for datatype in TYPED:
        onnx_models.typed(models / f"{datatype}.onnx", datatype)
    table = '[[models]]\nid = "masked"\npath = "masked.onnx"\npad = { axis = 1, value = 3, mask = "mask" }\n'
    (models / "models.toml").write_text(CONFIG + table)
    with running(directory, "--config", str(models / "models.toml"), "--models-dir", str(models)) as daemon:
        for model in daemon.call("GET", "/v1/models")[1]:
            assert daemon.call("POST", f"/v2/repository/models/{model['id']}/load")[0] == 200
        yield daemon


def plain(model: str, tensors: list[dict[str, Any]], data: list[list[Any]], **more: Any) -> Question:
    inputs = [tensor | {"data": values} for tensor, values in zip(tensors, data, strict=True)]
    return Question(f"/v2/models/{model}/infer", json.dumps({"inputs": inputs} | more).encode())


rows = st.integers(1, 8)
small = st.integers(-50, 50)
ids: st.SearchStrategy[dict[str, str]] = st.one_of(st.just({}), st.text(min_size=1, max_size=5, alphabet="abcß").map(lambda text: {"id": text}))


@st.composite
def typed(draw: st.DrawFn) -> Question:
    """Any bytes are numbers, NaN and denormals among them; but for BOOL."""
    datatype, count = draw(st.sampled_from(TYPED)), draw(rows)
    size = 2 * count * DTYPES[datatype].itemsize
    element = st.sampled_from((0, 1)) if datatype == "BOOL" else st.integers(0, 255)
    return binary(datatype, [declared("x", datatype, count, 2)], [bytes(draw(st.lists(element, min_size=size, max_size=size)))], **draw(ids))


@st.composite
def texts(draw: st.DrawFn) -> Question:
    values = draw(st.lists(st.text(max_size=6, alphabet=st.characters(exclude_categories=["Cs"])), min_size=1, max_size=8))
    tensor = declared("x", "BYTES", len(values))
    if draw(st.booleans()):
        return binary("strid", [tensor], [encode_strings([value.encode() for value in values])])
    return plain("strid", [tensor], [values], **draw(ids))


@st.composite
def shapes(draw: st.DrawFn) -> Question:
    count, length = draw(rows), draw(st.integers(1, 4))
    values = draw(st.lists(small, min_size=count * length, max_size=count * length))
    model = draw(st.sampled_from(("identdyn", "masked")))
    question = plain(model, [declared("x", "FP32", count, length)], [values], **draw(ids))
    if draw(st.booleans()):
        return question._replace(path=f"/v1/models/{model}/infer")
    return question


@st.composite
def masks(draw: st.DrawFn) -> Question:
    count, length = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    size = count * length
    tensors = [declared("mask", "INT64", count, length), declared("x", "FP32", count, length)]
    mask = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    # Not negative: a masked one leaves -0.0, to which the zeros of padding add up to +0.0, equal but not to the byte.
    values = draw(st.lists(st.integers(0, 50), min_size=size, max_size=size))
    if draw(st.booleans()):
        return plain("masked", tensors, [mask, values])
    return binary("masked", tensors, [struct.pack(f"<{len(mask)}q", *mask), struct.pack(f"<{len(values)}f", *values)])


@st.composite
def outputs(draw: st.DrawFn) -> Question:
    count, model = draw(rows), draw(st.sampled_from(("constout", "two_outputs")))
    names = draw(st.lists(st.sampled_from(("y", "z", "c")), unique=True, max_size=2))
    wish = {"outputs": [{"name": name} for name in names]} if names else {}
    values = draw(st.lists(small, min_size=count, max_size=count))
    return plain(model, [declared("x", "FP32", count, 1)], [values], **wish, **draw(ids))


@st.composite
def pairs(draw: st.DrawFn) -> Question:
    """Two inputs in any order; sometimes their rows disagree."""
    counts = [draw(rows)] * 2 if draw(st.integers(0, 9)) else [1, 2]
    names = draw(st.permutations(("a", "b")))
    tensors = [declared(name, "FP32", count, 2) for name, count in zip(names, counts, strict=True)]
    return plain("two_inputs", tensors, [[draw(small) for _ in range(2 * count)] for count in counts])


@st.composite
def indices(draw: st.DrawFn) -> Question:
    """Some are out of bounds, which fails the whole run."""
    values = draw(st.lists(st.sampled_from((0, 3, 9, -1, 77)), min_size=1, max_size=4))
    return plain("gather10", [declared("i", "INT64", len(values))], [values])


questions = st.lists(st.one_of(typed(), texts(), shapes(), masks(), outputs(), pairs(), indices()), min_size=2, max_size=12)


def comparable(answer: Answer) -> object:
    """All of an answer but how long it took."""
    if answer.json_length is None and answer.status == 200:
        return answer.status, {key: value for key, value in answer.json.items() if key != "duration_ms"}
    return answer


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(questions)
def test_an_answer_in_company_is_the_answer_alone(daemon: Daemon, asked: list[Question]) -> None:
    alone = [ask(daemon, question) for question in asked]
    together = ask_together(daemon, asked)
    for question, one, other in zip(asked, alone, together, strict=True):
        assert comparable(other) == comparable(one), question
        assert one.status in (200, 400), one
