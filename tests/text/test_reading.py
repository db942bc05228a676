"""From tokens to inputs, and from outputs to embeddings and scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wakeful.config.settings import TextSettings
from wakeful.errors import ExecutionFailed, InvalidInput
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.tensors import Tensor, narrow_bf16
from wakeful.text.reading import Embedder, Scorer, inputs_of

IDS = np.array([2, 7, 3], "<i4")
TOKENS = TensorSpec("last_hidden_state", "FP32", ("N", "L", 2))
TEXT = TensorSpec("sentence_embedding", "FP32", ("N", 2))
POOLER = TensorSpec("pooler_output", "FP32", ("N", 2))
VECTORS = np.array([[[3, 0], [0, 8], [0, 1]]], "<f4")


def inputs(*specs: TensorSpec, types: Any = None) -> dict[str, list[list[int]]]:
    kinds = {"INT64": "<i8", "INT32": "<i4"}
    made = inputs_of(Signature(specs, ()), IDS, types)
    return {tensor.name: np.frombuffer(tensor.data, kinds[tensor.datatype]).reshape(tensor.shape).tolist() for tensor in made}


def spec(name: str, datatype: str = "INT64", *, optional: bool = False) -> TensorSpec:
    return TensorSpec(name, datatype, ("N", "L"), optional)


def settings(**more: Any) -> TextSettings:
    return TextSettings(Path("t.json"), **more)


def embedding(outputs: tuple[TensorSpec, ...], array: np.ndarray, datatype: str = "FP32", dimensions: int | None = None, **more: Any) -> list[float]:
    embedder = Embedder(Signature((), outputs), settings(**{"normalize": False, **more}))
    data = narrow_bf16(array) if datatype == "BF16" else array
    vector = embedder([Tensor(embedder.output, datatype, array.shape, data.tobytes())], dimensions)
    assert vector.dtype == np.dtype("<f4")
    numbers: list[float] = vector.tolist()
    return numbers


def test_inputs_are_what_the_model_takes() -> None:
    made = inputs(spec("attention_mask", "INT32"), spec("input_ids"), spec("position_ids"), spec("token_type_ids"), spec("more", optional=True))
    assert made == {"attention_mask": [[1, 1, 1]], "input_ids": [[2, 7, 3]], "position_ids": [[0, 1, 2]], "token_type_ids": [[0, 0, 0]]}
    assert inputs(spec("token_type_ids"), types=np.array([0, 1, 1], "<i4")) == {"token_type_ids": [[0, 1, 1]]}


@pytest.mark.parametrize("wrong", [spec("pixel_values"), spec("input_ids", "FP32")])
def test_what_is_not_made_of_texts_is_named(wrong: TensorSpec) -> None:
    with pytest.raises(InvalidInput, match=f"it takes {wrong.name}"):
        inputs(wrong)


@pytest.mark.parametrize(
    ("pooling", "expected"), [("mean", [1, 3]), ("cls", [3, 0]), ("last", [0, 1]), ("max", [3, 8]), ("auto", [1, 3])],
)
def test_pooling(pooling: Any, expected: list[float]) -> None:
    assert embedding((TOKENS, POOLER), VECTORS, pooling=pooling) == expected


def test_what_lies_beside_the_model_says_how_it_is_pooled_usually() -> None:
    assert embedding((TOKENS,), VECTORS, usual_pooling="cls") == [3, 0]
    assert embedding((TOKENS,), VECTORS, usual_pooling="cls", pooling="last") == [0, 1]


@pytest.mark.parametrize(
    ("outputs", "more", "chosen"),
    [
        ((TOKENS, TEXT), {}, TEXT), ((TOKENS, TEXT), {"pooling": "mean"}, TOKENS), ((TOKENS, POOLER), {}, TOKENS), ((POOLER,), {}, POOLER),
        ((TOKENS, POOLER), {"pooling": "none"}, POOLER), ((TEXT,), {"pooling": "cls"}, TEXT), ((TensorSpec("n", "INT64", ("N", 2)), TEXT), {}, TEXT),
    ],
)
def test_which_output_is_the_embedding(outputs: tuple[TensorSpec, ...], more: Any, chosen: TensorSpec) -> None:
    assert Embedder(Signature((), outputs), settings(**more)).output == chosen.name


@pytest.mark.parametrize(("outputs", "more"), [
    ((), {}), ((TOKENS,), {"pooling": "none"}), ((TensorSpec("n", "INT64", ("N", 2)),), {}), ((TensorSpec("logits", "FP32", ("N", 1)),), {}),
])
def test_a_model_without_embeddings(outputs: tuple[TensorSpec, ...], more: Any) -> None:
    with pytest.raises(InvalidInput, match="model: expected one with an output of"):
        Embedder(Signature((), outputs), settings(**more))


@pytest.mark.parametrize(("datatype", "kind"), [("FP16", "<f2"), ("FP64", "<f8"), ("BF16", "<f4")])
def test_every_float_is_an_embedding(datatype: str, kind: str) -> None:
    output = TensorSpec("e", datatype, ("N", 2))
    assert embedding((output,), np.array([[1.5, -2]], kind), datatype) == [1.5, -2]


def test_length_and_dimensions() -> None:
    three = TensorSpec("e", "FP32", ("N", "D"))
    array = np.array([[3, 4, 12]], "<f4")
    assert embedding((three,), array, normalize=True) == pytest.approx([3 / 13, 4 / 13, 12 / 13])
    assert embedding((three,), array, dimensions=2) == pytest.approx([0.6, 0.8])
    assert embedding((three,), np.zeros((1, 3), "<f4"), normalize=True) == [0, 0, 0]
    with pytest.raises(InvalidInput, match="dimensions: expected at most the 3"):
        embedding((three,), array, dimensions=4)


def test_an_output_of_another_form_than_declared() -> None:
    with pytest.raises(ExecutionFailed):
        embedding((TEXT,), np.zeros((2, 2), "<f4"))


@pytest.mark.parametrize("shape", [(1, 1), (1,)])
def test_scores(shape: tuple[int, ...]) -> None:
    signature = Signature((), (TOKENS, TensorSpec("logits", "FP32", ("N", *shape[1:]))))
    tensor = Tensor("logits", "FP32", shape, np.array([2], "<f4").tobytes())
    assert Scorer(signature, settings())([tensor]) == pytest.approx(1 / (1 + np.exp(-2)))
    assert Scorer(signature, settings(activation="none"))([tensor]) == 2
    assert Scorer(signature, settings())([tensor._replace(data=np.array([-1e4], "<f4").tobytes())]) == 0


def test_scores_of_several_labels_rank_nothing() -> None:
    with pytest.raises(InvalidInput, match="a cross-encoder, with one score a pair"):
        Scorer(Signature((), (TensorSpec("logits", "FP32", ("N", 3)),)), settings())
    unnamed = Scorer(Signature((), (TensorSpec("logits", "FP32", ("N", None)),)), settings())
    with pytest.raises(ExecutionFailed):
        unnamed([Tensor("logits", "FP32", (1, 3), bytes(12))])
