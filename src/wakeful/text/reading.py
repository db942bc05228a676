"""From tokens to a model's inputs, and from its outputs to embeddings and scores. Pure; one text at a time."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wakeful.config.settings import TextSettings
from wakeful.errors import ExecutionFailed, InvalidInput
from wakeful.runtime.messages import Signature, TensorSpec
from wakeful.tensors import DTYPES, Tensor, widen_bf16

Array = np.ndarray[Any, Any]

INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
"""What can be made of a text."""
_FLOATS = ("FP32", "FP16", "BF16", "FP64")
_NOT_OF_THE_TEXT = "pooler_output"
"""Of a BERT as it was trained: no embedding of a sentence, where there are vectors of tokens."""
LEAST_NORM = 1e-12


def inputs_of(signature: Signature, ids: Array, types: Array | None) -> list[Tensor]:
    """The inputs of one text of `ids` (int32, [length]), each [1, length]; `types` tells the parts of a pair apart.

    Raises InvalidInput where the model needs what cannot be made of a text.
    """
    length = len(ids)
    made: dict[str, Array] = {
        "input_ids": ids, "attention_mask": np.ones(length, np.int64), "position_ids": np.arange(length),
        "token_type_ids": np.zeros(length, np.int64) if types is None else types,
    }
    tensors = []
    for spec in signature.inputs:
        if spec.name in made and spec.datatype in ("INT64", "INT32"):
            tensors.append(Tensor(spec.name, spec.datatype, (1, length), made[spec.name].astype(DTYPES[spec.datatype].numpy).tobytes()))
        elif not spec.optional:
            raise InvalidInput(f"model: it takes {spec.name} ({spec.datatype}), which is not made of texts; they give {', '.join(INPUTS)}")
    return tensors


class Embedder:
    """How the embedding of a text is read from the outputs of a model."""

    def __init__(self, signature: Signature, settings: TextSettings) -> None:
        """Raises InvalidInput where no output is one."""
        outputs = [spec for spec in signature.outputs if spec.datatype in _FLOATS]
        tokens = next((spec for spec in outputs if len(spec.shape) == 3), None)
        texts = [spec for spec in outputs if len(spec.shape) == 2 and spec.shape[1] != 1]  # one number is a score
        text = next((spec for spec in texts if spec.name != _NOT_OF_THE_TEXT), None if tokens is not None else next(iter(texts), None))
        as_it_is = settings.pooling == "none" or (settings.pooling == "auto" and text is not None) or tokens is None
        chosen = (text or next(iter(texts), None)) if as_it_is else tokens
        if chosen is None:
            wanted = "an output of [texts, size]" if settings.pooling == "none" else "an output of [texts, size] or [texts, tokens, size]"
            raise InvalidInput.field("model", f"one with {wanted}", f"outputs {[spec.name for spec in signature.outputs]}")
        self.output = chosen.name
        self._spec = chosen
        self._pooling = settings.usual_pooling if settings.pooling == "auto" else settings.pooling
        self._normalize = settings.normalize
        size = chosen.shape[-1]
        self.size = size if isinstance(size, int) else None
        """Of an embedding, if it is declared."""

    def __call__(self, outputs: Sequence[Tensor], dimensions: int | None = None) -> Array:
        """Float32, [size]. Fewer `dimensions` are the first ones, made as long as 1 again. Raises ExecutionFailed for another form than declared."""
        values = _values(outputs[0])
        if len(values) != 1 or values.ndim != len(self._spec.shape):
            raise ExecutionFailed(f"output {self.output} of one text has shape {list(values.shape)}")
        vector = _pooled(values[0], self._pooling) if values.ndim == 3 else values[0]
        if dimensions is not None and dimensions > len(vector):
            raise InvalidInput.field("dimensions", f"at most the {len(vector)} that the model has", dimensions)
        vector = vector[:dimensions]
        if self._normalize or dimensions is not None:
            vector = vector / max(float(np.linalg.norm(vector)), LEAST_NORM)
        return vector.astype("<f4")


def _pooled(vectors: Array, pooling: str) -> Array:
    """One vector of those of the tokens, [length, size]. A text is never without tokens, and what was filled up has been cut off."""
    match pooling:
        case "cls":
            return np.asarray(vectors[0])
        case "last":
            return np.asarray(vectors[-1])
        case "max":
            return np.asarray(vectors.max(axis=0))
        case _:
            return np.asarray(vectors.mean(axis=0, dtype=np.float32))


class Scorer:
    """How the score of a pair is read from the outputs of a cross-encoder."""

    def __init__(self, signature: Signature, settings: TextSettings) -> None:
        """Raises InvalidInput where no output is one."""
        chosen = next((spec for spec in signature.outputs if spec.datatype in _FLOATS and _is_score(spec)), None)
        if chosen is None:
            shapes = {spec.name: list(spec.shape) for spec in signature.outputs}
            raise InvalidInput.field("model", "a cross-encoder, with one score a pair", f"outputs {shapes}")
        self.output = chosen.name
        self._squash = settings.activation == "sigmoid"

    def __call__(self, outputs: Sequence[Tensor]) -> float:
        values = _values(outputs[0])
        if values.size != 1:
            raise ExecutionFailed(f"output {self.output} of one pair has shape {list(values.shape)}")
        score = float(values.ravel()[0])
        return 0.5 + 0.5 * math.tanh(score / 2) if self._squash else score  # the sigmoid, in a form that does not overflow


def _is_score(spec: TensorSpec) -> bool:
    return len(spec.shape) == 1 or (len(spec.shape) == 2 and (spec.shape[1] == 1 or not isinstance(spec.shape[1], int)))


def _values(tensor: Tensor) -> Array:
    """As numbers that can be summed; a view where that is possible."""
    elements: Array = np.ndarray(tensor.shape, DTYPES[tensor.datatype].numpy, buffer=tensor.data)
    return widen_bf16(elements) if tensor.datatype == "BF16" else elements.astype(np.float32, copy=False)
