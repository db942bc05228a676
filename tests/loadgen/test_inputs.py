"""Inputs from descriptions, and addresses from what people type."""

import numpy as np
import pytest

from wakeful.errors import InvalidInput
from wakeful.loadgen.inputs import WORDS, Wishes, make, plan, unused
from wakeful.loadgen.target import InputSpec, Target, parse_url
from wakeful.tensors import DTYPES, decode_strings, element_count

IDS = InputSpec("ids", "INT64", (-1, -1))
IMAGE = InputSpec("image", "FP32", (-1, 3, "height", "width"))


def shapes(wishes: Wishes, *specs: InputSpec, rows: int = 2) -> list[tuple[int, ...]]:
    return [tensor.shape for tensor in make(plan("m", specs, wishes), rows, wishes.integers, np.random.default_rng(1))]


def test_axis_0_is_rows_and_the_rest_is_said_or_1() -> None:
    assert shapes(Wishes(), IDS, IMAGE) == [(2, 1), (2, 3, 1, 1)]
    assert plan("m", [IDS, IMAGE], Wishes()).assumed == ("ids axis 1", "image axis 2 (height)", "image axis 3 (width)")
    assert shapes(Wishes({"1": 128, "height": 8}), IDS, IMAGE) == [(2, 128), (2, 3, 8, 1)]
    assert shapes(Wishes(shapes={"ids": (5, 7)}), IDS) == [(5, 7)]
    assert shapes(Wishes({"0": 9}), IDS) == [(9, 1)]
    assert not plan("m", [InputSpec("x", "FP32", (1, 4))], Wishes()).free_rows


def test_wishes_that_concern_nothing() -> None:
    assert unused({"1": 3, "height": 8}, [IDS, IMAGE]) == []
    assert unused({"5": 3, "depth": 8}, [IDS, IMAGE]) == ["5", "depth"]
    with pytest.raises(InvalidInput, match="m has no input idz; it has ids"):
        plan("m", [IDS], Wishes(shapes={"idz": (1,)}))


def test_what_cannot_be_made_up() -> None:
    with pytest.raises(InvalidInput, match="does not say"):
        plan("m", [], Wishes())
    with pytest.raises(InvalidInput, match="datatype COMPLEX"):
        plan("m", [InputSpec("x", "COMPLEX", (1,))], Wishes())
    with pytest.raises(InvalidInput, match="at most"):
        shapes(Wishes(shapes={"x": (1 << 20, 1 << 20)}), InputSpec("x", "FP32", (-1, -1)))
    with pytest.raises(InvalidInput, match="--int-range: expected numbers that fit UINT8"):
        shapes(Wishes(integers=(-1, 5)), InputSpec("x", "UINT8", (-1,)))


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype(datatype: str) -> None:
    inputs = plan("m", [InputSpec("x", datatype, (-1, 5))], Wishes())
    (tensor,) = make(inputs, 20, (0, 7), np.random.default_rng(3))
    assert (tensor.datatype, tensor.shape) == (datatype, (20, 5))
    count = element_count(tensor.shape)
    if datatype == "BYTES":
        assert set(decode_strings(tensor.data, count)) <= set(WORDS)
        return
    assert len(tensor.data) == count * DTYPES[datatype].itemsize
    values = np.frombuffer(tensor.data, DTYPES[datatype].numpy)
    assert len(set(values.tolist())) > 1
    if "INT" in datatype:
        assert (values.min(), values.max()) == (0, 7)
    elif datatype in ("FP16", "FP32", "FP64"):
        assert 0 <= values.min() <= values.max() <= 1
    assert make(inputs, 20, (0, 7), np.random.default_rng(3)) == (tensor,)


@pytest.mark.parametrize(("text", "target", "url"), [
    ("127.0.0.1:8080", Target("127.0.0.1", 8080), "http://127.0.0.1:8080"),
    ("http://models.example/", Target("models.example", 80), "http://models.example:80"),
    ("http://[::1]:9", Target("::1", 9), "http://[::1]:9"),
    ("http://h:1/serving/v2", Target("h", 1, "/serving"), "http://h:1/serving"),
])
def test_parse_url(text: str, target: Target, url: str) -> None:
    assert parse_url(text) == target
    assert target.url == url


@pytest.mark.parametrize("text", ["https://h", "http://", "h:port", "http://h:99999"])
def test_no_url(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_url(text)
