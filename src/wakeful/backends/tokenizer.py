"""Tokenizers as a backend: texts in, token ids out.

A tokenizer.json is a program of a stranger's: its regular expressions may run for ever and its rules multiply a text without end. So it runs where
models run, in a process that may die without harm.
"""

import os
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # before the import: its threads would compete with the models', and not survive a fork

import tokenizers
from tokenizers import Tokenizer

from wakeful.backends.base import LoadOptions, Plain
from wakeful.errors import ExecutionFailed, InvalidInput, Unavailable
from wakeful.runtime.messages import Signature, TensorSpec

LIBRARY = f"tokenizers {tokenizers.__version__}"

SIGNATURE = Signature(
    (TensorSpec("text", "BYTES", ("rows", "parts")), TensorSpec("limit", "INT64", ("rows",))),
    tuple(TensorSpec(name, datatype, ("rows",)) for name, datatype in (("ids", "BYTES"), ("types", "BYTES"), ("cut", "BOOL"))),
    "tokenizers",
)
"""A row of `text` is one text, or a pair. `limit`: most tokens, those that mark beginning and end among them; more are cut off at the right, or at
the left where it is negative; 0: all are wanted. Each element of `ids` and `types` holds little-endian 32-bit numbers, one for each token; `cut`
tells whether there were more."""


class TokenizerBackend(Plain):
    """One open tokenizer. See `backends.base.Backend`."""

    signature = SIGNATURE

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._limit = 0

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        texts, limits = inputs["text"], inputs["limit"].tolist()
        if not 1 <= texts.shape[1] <= 2:
            raise InvalidInput.field("text", "a text or a pair in each row", texts.shape[1])
        ids, types, cut = np.empty(len(texts), object), np.empty(len(texts), object), np.zeros(len(texts), bool)
        try:
            for row, encoding in enumerate(self._encoded(texts, limits)):
                ids[row] = np.array(encoding.ids, "<i4").tobytes()
                types[row] = np.array(encoding.type_ids, "<i4").tobytes()
                cut[row] = bool(encoding.overflowing)
        except BaseException as error:  # a panic in the library is not even an Exception
            raise ExecutionFailed(f"the tokenizer has failed: {error}") from error
        return [ids, types, cut]

    def _encoded(self, texts: np.ndarray, limits: list[int]) -> Iterator[Any]:
        """In the order of the texts. Those that follow each other with the same limit are encoded together."""
        rows = [tuple(row) if len(row) > 1 else row[0] for row in texts.tolist()]
        for limit, group in groupby(zip(limits, rows, strict=True), key=lambda pair: pair[0]):
            self._cut_at(limit)
            yield from self._tokenizer.encode_batch_fast([row for _, row in group])

    def _cut_at(self, limit: int) -> None:
        if limit == self._limit:
            return
        self._limit = limit
        if limit:
            self._tokenizer.enable_truncation(abs(limit), direction="right" if limit > 0 else "left")
        else:
            self._tokenizer.no_truncation()


def open_model(path: str, options: LoadOptions) -> TokenizerBackend:  # noqa: ARG001 - as every backend's
    """What the file says of filling up and cutting off does not count: the daemon decides that. Raises Unavailable naming the file."""
    try:
        tokenizer = Tokenizer.from_file(path)
        tokenizer.no_padding()
        tokenizer.no_truncation()
    except BaseException as error:  # as in `run`
        raise Unavailable(f"{path} is no tokenizer: {error}") from error
    return TokenizerBackend(tokenizer)


def prepare(path: str, directory: str) -> None:  # noqa: ARG001 - as every backend's
    raise Unavailable("tokenizers are not prepared")


def providers() -> tuple[str, ...]:
    return ("CPU",)
