import numpy as np
import pytest

from wakeful.errors import InvalidInput
from wakeful.runtime.messages import Placement, TensorSpec
from wakeful.tensors import DTYPES, encode_strings
from wakeful.worker import arrays


def round_trip(spec: TensorSpec, array: np.ndarray, start: int = 0) -> np.ndarray:
    placements, end = arrays.layout([spec], [array], start)
    slot = memoryview(bytearray(end))
    arrays.fill(slot, placements, [array])
    return arrays.read(placements[0], slot)


@pytest.mark.parametrize("datatype", [name for name in DTYPES if name != "BYTES"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1,), (2, 3), (2, 3, 4)])
def test_every_fixed_size_datatype_and_shape(datatype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(DTYPES[datatype].numpy)
    got = round_trip(TensorSpec("x", datatype, shape), array, start=13)
    assert got.shape == shape
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)


def test_strides_and_byte_order_do_not_matter() -> None:
    array = np.arange(24, dtype=">f4").reshape(4, 6)[::2, ::-1].T
    got = round_trip(TensorSpec("x", "FP32", (6, 2)), array)
    assert got.dtype == np.dtype("<f4")
    np.testing.assert_array_equal(got, array)


def test_texts_come_back_as_str() -> None:
    texts = np.array([["", "€"], ["a\0b", "x" * 1_000_000]], object)
    got = round_trip(TensorSpec("x", "BYTES", (2, 2)), texts)
    assert got.dtype == object
    assert got.tolist() == texts.tolist()
    assert all(type(element) is str for element in got.ravel())
    assert round_trip(TensorSpec("x", "BYTES", (0,)), np.array([], object)).shape == (0,)
    assert round_trip(TensorSpec("x", "BYTES", ()), np.array("one", object)).shape == ()


def test_reading_makes_no_copy() -> None:
    slot = bytearray(64)
    view = arrays.read(Placement("x", "INT32", (2,), 4, 8), memoryview(slot))
    slot[4:12] = np.array([7, 8], "<i4").tobytes()
    assert view.tolist() == [7, 8]


@pytest.mark.parametrize("raw", [b"\xff\x00", "\udcff".encode("utf-8", "surrogatepass")])
def test_what_is_not_utf8_is_refused_by_name(raw: bytes) -> None:
    data = encode_strings([b"fine", raw])
    with pytest.raises(InvalidInput, match=r"text: expected UTF-8 text, got .* in element 1"):
        arrays.read(Placement("text", "BYTES", (2,), 0, len(data)), memoryview(data))


@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_a_shape_that_numpy_cannot_hold_is_refused_by_name(datatype: str) -> None:
    """It has no elements, so that its size fits any request."""
    with pytest.raises(InvalidInput, match=rf"input x: shape \[0, {2**62}, 8\] cannot be held"):
        arrays.read(Placement("x", datatype, (0, 2**62, 8), 0, 0), memoryview(b""))


def test_outputs_are_aligned_and_do_not_overlap() -> None:
    specs = [TensorSpec("a", "INT8", (3,)), TensorSpec("b", "BYTES", (2,)), TensorSpec("c", "FP64", ())]
    outputs = [np.array([1, 2, 3], "i1"), np.array(["ab", "€"], object), np.array(0.5)]
    placements, end = arrays.layout(specs, outputs, start=100)
    assert [placement.offset for placement in placements] == [128, 192, 256]
    assert [placement.nbytes for placement in placements] == [3, 13, 8]
    assert end == 264
    slot = memoryview(bytearray(end))
    arrays.fill(slot, placements, outputs)
    assert bytes(slot[:128]) == bytes(128)
    assert [arrays.read(placement, slot).tolist() for placement in placements] == [[1, 2, 3], ["ab", "€"], 0.5]


def test_an_output_of_another_type_is_not_cast() -> None:
    array = np.zeros(2, np.float64)
    placements, end = arrays.layout([TensorSpec("x", "FP32", (2,))], [array], 0)
    with pytest.raises(TypeError):
        arrays.fill(memoryview(bytearray(end)), placements, [array])


def test_a_missing_output_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        arrays.layout([TensorSpec("x", "FP32", (2,))], [], 0)
