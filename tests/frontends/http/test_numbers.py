"""Elements as JSON: every datatype there and back, strictness, and the short and long ways alike."""

import json
import math
import struct
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.errors import ExecutionFailed, InvalidInput
from wakeful.frontends.http import numbers
from wakeful.tensors import DTYPES, encode_strings

INTEGERS = [name for name in DTYPES if "INT" in name]
WIDTHS: dict[str, Literal[16, 32, 64]] = {"FP16": 16, "FP32": 32, "FP64": 64}
FLOATS = list(WIDTHS)

repeatable = settings(deadline=None, derandomize=True)


def decode(text: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    return numbers.decode(text.encode(), datatype, shape, "inputs[0]")


def refusal(text: str, datatype: str, shape: tuple[int, ...]) -> str:
    with pytest.raises(InvalidInput) as caught:
        decode(text, datatype, shape)
    return caught.value.message


def bounds(datatype: str) -> tuple[int, int]:
    info = np.iinfo(DTYPES[datatype].numpy)
    return int(info.min), int(info.max)


@pytest.mark.parametrize("datatype", INTEGERS)
@repeatable
@given(data=st.data())
def test_integers_stay_exact(datatype: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(*bounds(datatype))))
    expected = np.array(values, DTYPES[datatype].numpy).tobytes()
    assert decode(json.dumps(values), datatype, (len(values),)) == expected
    assert json.loads(numbers.encode(expected, datatype, (len(values),), "y")) == values


@pytest.mark.parametrize("datatype", FLOATS)
@repeatable
@given(data=st.data())
def test_floats_come_back_bit_by_bit(datatype: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.floats(width=WIDTHS[datatype], allow_nan=False, allow_infinity=False)))
    packed = np.array(values, DTYPES[datatype].numpy).tobytes()
    assert decode(json.dumps(values), datatype, (len(values),)) == packed
    assert numbers.decode(numbers.encode(packed, datatype, (len(values),), "y"), datatype, (len(values),), "inputs[0]") == packed


@repeatable
@given(st.lists(st.booleans()))
def test_booleans(values: list[bool]) -> None:
    assert decode(json.dumps(values), "BOOL", (len(values),)) == bytes(values)
    assert decode(json.dumps([int(value) for value in values]), "BOOL", (len(values),)) == bytes(values)
    assert json.loads(numbers.encode(bytes(values), "BOOL", (len(values),), "y")) == values


@repeatable
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_strings(values: list[str]) -> None:
    packed = encode_strings([value.encode() for value in values])
    assert decode(json.dumps(values), "BYTES", (len(values),)) == packed
    assert json.loads(numbers.encode(packed, "BYTES", (len(values),), "y")) == values


@pytest.mark.parametrize("datatype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("shape", [(4000,), (40, 100), (10, 20, 20), (1, 4000, 1)])
def test_long_arrays_are_read_like_short_ones_flat_and_nested(datatype: str, shape: tuple[int, ...]) -> None:
    low, high = (-60000, 60000) if datatype in FLOATS else bounds(datatype)
    values = np.random.default_rng(0).integers(low, high, 4000, endpoint=True, dtype="u8" if datatype == "UINT64" else "i8")
    array = values.astype(DTYPES[datatype].numpy)
    expected = array.tobytes()
    nested: list[object] = array.reshape(shape).tolist()
    for text in (json.dumps(array.tolist()), json.dumps(nested), json.dumps(nested, indent=1)):
        assert len(text) > numbers.LONG
        assert decode(text, datatype, shape) == expected


def test_text_longer_than_the_parser_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "KEPT", numbers.LONG)
    array = np.random.default_rng(0).random(4000, "f4")
    text = numbers.encode(array.tobytes(), "FP32", array.shape, "y")
    assert len(text) > numbers.KEPT
    assert numbers.decode(text, "FP32", array.shape, "inputs[0]") == array.tobytes()


@pytest.mark.parametrize("piece", [1, 7, 100, 1000, 40_000])
def test_long_flat_arrays_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(numbers, "PIECE", piece)
    array = np.random.default_rng(0).random(4000, "f4")
    text = json.dumps(array.tolist())
    assert decode(text, "FP32", (4000,)) == array.tobytes()
    for last in (", 1]", ', "a,b"]', ', {"a": 1, "b": 2}]', ", null]", ", [1, 2]]", ", 1e39]"):
        with pytest.raises(InvalidInput):
            decode(text[:-1] + last, "FP32", (4000,))
    for whole in ('"' + text[1:-1] + '"', '{"a": ' + text + "}", '"' + text + '"'):
        with pytest.raises(InvalidInput):
            decode(whole, "FP32", (4000,))


@pytest.mark.parametrize("count", [1, 4000])
def test_integers_beyond_doubles(count: int) -> None:
    assert decode(json.dumps([2**63 - 1] * count), "INT64", (count,)) == struct.pack("<q", 2**63 - 1) * count
    assert decode(json.dumps([2**64 - 1] * count), "UINT64", (count,)) == struct.pack("<Q", 2**64 - 1) * count
    assert decode(json.dumps([2**53 + 1] * count), "INT64", (count,)) == struct.pack("<q", 2**53 + 1) * count


@pytest.mark.parametrize("count", [1, 4000])
def test_integers_of_any_size_are_taken_for_floats(count: int) -> None:
    assert decode(json.dumps([2**70] * count), "FP64", (count,)) == struct.pack("<d", 2.0**70) * count
    assert decode(json.dumps([3] * count), "FP16", (count,)) == struct.pack("<e", 3) * count


@pytest.mark.parametrize("padding", [0, 4000])
@pytest.mark.parametrize(
    ("datatype", "token", "complaint"),
    [
        ("INT8", "128", "expected `int` <= 127"),
        ("INT8", "-129", "expected `int` >= -128"),
        ("UINT8", "-1", "expected `int` >= 0"),
        ("INT32", "1.5", "expected `int`, got `float`"),
        ("INT32", "1.0", "expected `int`, got `float`"),
        ("INT32", "true", "expected `int`, got `bool`"),
        ("INT64", "9223372036854775808", "expected `int` <= 9223372036854775807"),
        ("UINT64", "18446744073709551616", "expected a number in the range of UINT64"),
        ("UINT64", "1" + "0" * 5000, ""),
        ("FP16", "65520", "expected a number in the range of FP16, got 65520"),
        ("FP32", "1e39", "expected a number in the range of FP32, got 1e+39"),
        ("FP32", "true", "expected `float`, got `bool`"),
        ("FP32", '"1"', "expected `float`, got `str`"),
        ("FP32", "null", "expected `float`, got `null`"),
        ("FP64", "1e999", "number out of range"),
        ("BOOL", "2", "expected `int` <= 1"),
        ("BOOL", '"x"', "expected `bool | int`, got `str`"),
        ("BYTES", "7", "expected `str`, got `int`"),
    ],
)
def test_the_culprit_is_named_in_short_and_in_long_arrays(datatype: str, token: str, complaint: str, padding: int) -> None:
    good = '""' if datatype == "BYTES" else "0"
    text = "[" + ",".join([good] * padding + [token]) + "]"
    message = refusal(text, datatype, (padding + 1,))
    assert message.startswith(f"inputs[0].data[{padding}]: {complaint}")
    assert len(message) < 200


@pytest.mark.parametrize(
    ("text", "shape", "place"),
    [
        ("[1,2,3]", (1, 4), "inputs[0].data"),
        ("[1,2,3,4,5]", (1, 4), "inputs[0].data"),
        ("[]", (), "inputs[0].data"),
        ("[[1,2],[3]]", (2, 2), "inputs[0].data"),
        ("[[1,2],[3,4,5]]", (2, 2), "inputs[0].data"),
        ("[[1],[2],[3],[4]]", (2, 2), "inputs[0].data"),
        ("[[1,2],3,4]", (2, 2), "inputs[0].data[1]"),
        ("[1,[2,3],4]", (2, 2), "inputs[0].data[1]"),
        ("[[1,2,3,4]]", (4,), "inputs[0].data[0]"),
        ("[[[1,2],[3,4]]]", (2, 2), "inputs[0].data[0][0]"),
        ('[[1,2],[3,"x"]]', (2, 2), "inputs[0].data[1][1]"),
        ("5", (), "inputs[0].data"),
        ("null", (1,), "inputs[0].data"),
        ("{}", (1,), "inputs[0].data"),
        ("[" * 100 + "]" * 100, (1,), "inputs[0].data[0]"),
        ("[1]", (4611686018427387904, 4), "inputs[0].data"),
    ],
)
def test_wrong_counts_and_ragged_nesting(text: str, shape: tuple[int, ...], place: str) -> None:
    for datatype in ("FP32", "INT8", "UINT64"):
        assert refusal(text, datatype, shape).startswith(f"{place}: expected ")


@pytest.mark.parametrize("rows", [[[1.5] * 1999, [1.5] * 2001], [[1.5] * 4000], [[1.5]] * 4000])
def test_long_nesting_must_follow_the_shape(rows: list[list[float]]) -> None:
    assert refusal(json.dumps(rows), "FP32", (2, 2000)).startswith("inputs[0].data: expected 2")


@pytest.mark.parametrize(
    ("text", "shape"),
    [("[]", (0,)), ("[]", (0, 4)), ("[]", (10**9, 0)), ("[[],[]]", (2, 0)), ("[7]", ()), ("[[[7]]]", (1, 1, 1)), (" [ [ 7 ] ] ", (1, 1))],
)
def test_empty_tensors_and_scalars(text: str, shape: tuple[int, ...]) -> None:
    assert decode(text, "INT8", shape) == b"\x07" * math.prod(shape)


def test_many_empty_rows_are_read_the_long_way_too() -> None:
    assert decode(json.dumps([[]] * 4000), "FP32", (4000, 0)) == b""


def test_bf16_has_no_json_form_in_but_one_out() -> None:
    assert "binary data" in refusal("[1]", "BF16", (1,))
    upper_halves = np.array([1.5, -2.0, np.inf], "<f4").view("<u4") >> 16
    assert numbers.encode(upper_halves.astype("<u2").tobytes(), "BF16", (3,), "y") == b"[1.5,-2.0,null]"


@pytest.mark.parametrize("datatype", FLOATS)
def test_what_is_not_finite_becomes_null(datatype: str) -> None:
    data = np.array([0, -np.inf, np.nan, np.inf], DTYPES[datatype].numpy).tobytes()
    assert numbers.encode(data, datatype, (4,), "y") == b"[0.0,null,null,null]"


def test_fp32_is_written_with_its_own_digits() -> None:
    assert numbers.encode(np.array([0.1], "<f4").tobytes(), "FP32", (1,), "y") == b"[0.1]"


def test_views_at_odd_addresses() -> None:
    view = memoryview(b"x" + struct.pack("<2f", 0.5, 2))[1:]
    assert numbers.encode(view, "FP32", (2,), "y") == b"[0.5,2.0]"


def test_strings_that_are_not_text_ask_for_binary() -> None:
    with pytest.raises(ExecutionFailed, match=r"output y .* binary"):
        numbers.encode(encode_strings([b"ok", b"\xff\x00"]), "BYTES", (2,), "y")


@pytest.mark.parametrize("count", [numbers.ELEMENTS, numbers.ELEMENTS + 1, 3 * numbers.ELEMENTS, 3 * numbers.ELEMENTS + 7])
def test_what_is_written_in_pieces_is_one_array(count: int) -> None:
    whole = np.arange(count, dtype="<i4")
    assert json.loads(numbers.encode(whole.tobytes(), "INT32", (count,), "y")) == whole.tolist()
    texts = [f"{number}," for number in range(count)]
    assert json.loads(numbers.encode(encode_strings([text.encode() for text in texts]), "BYTES", (count,), "y")) == texts
