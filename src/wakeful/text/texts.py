"""The verbs for texts: embed and rerank. A text is tokenised, then it is a request of its own, which shares its run with texts of about its length,
whoever sent them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wakeful.config.settings import TextSettings
from wakeful.engine import Engine
from wakeful.errors import InvalidInput, TooLarge
from wakeful.runtime.messages import Signature
from wakeful.telemetry.units import show_bytes
from wakeful.tensors import Tensor, decode_strings, encode_strings
from wakeful.text.call import Call, Piece
from wakeful.text.reading import Array, Embedder, Scorer, inputs_of

MOST_TEXTS = 2048
"""Of one call, as OpenAI has it."""
LONGEST_TEXT = 1 << 20
"""Bytes: so much takes a tokenizer a second, while others wait."""

Text = str | Sequence[int]
"""Or its tokens, which are taken as they are."""


class Tokens(NamedTuple):
    """Of one text, or pair."""

    ids: Array
    """int32, [length]"""
    types: Array | None
    cut: bool
    """There were more."""


class Embedded(NamedTuple):
    vectors: list[Array]
    """float32, [size], in the order of the texts."""
    tokens: int
    cut: int
    """Texts that were longer than the model takes."""


class Reranked(NamedTuple):
    scores: list[float]
    """In the order of the documents."""
    tokens: int
    cut: int


class Texts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def embed(self, call: Call, texts: Sequence[Text], dimensions: int | None = None) -> Embedded:
        """Raises the error of the first text that cannot be embedded, naming it; nothing comes of the others then."""
        with self._engine.counted(call.model, call.protocol, call.arrived):
            settings = self._begin(call)
            _check_count("input", len(texts))
            tokens = [_given(settings, index, text) if not isinstance(text, str) else None for index, text in enumerate(texts)]
            written = {index: (text,) for index, text in enumerate(texts) if isinstance(text, str)}
            for index, (text,) in written.items():
                _check_text(f"input[{index}]", text)
            found = dict(zip(written, await self._tokenize(call, settings, list(written.values())), strict=True))
            whole = [one or found[index] for index, one in enumerate(tokens)]
            _check_lengths("input", settings, whole)
            signature = await self._engine.signature(call.model)
            embedder = Embedder(signature, settings)
            if dimensions is not None and embedder.size is not None and dimensions > embedder.size:
                raise InvalidInput.field("dimensions", f"at most the {embedder.size} that the model has", dimensions)
            vectors = await self._run(call, "input", signature, whole, embedder.output, partial(embedder, dimensions=dimensions))
            return Embedded(vectors, sum(len(one.ids) for one in whole), sum(one.cut for one in whole))

    async def rerank(self, call: Call, query: str, documents: Sequence[str]) -> Reranked:
        """How well each document fits. Raises as `embed` does."""
        with self._engine.counted(call.model, call.protocol, call.arrived):
            settings = self._begin(call)
            _check_count("documents", len(documents))
            _check_text("query", query)
            for index, document in enumerate(documents):
                _check_text(f"documents[{index}]", document, empty=True)
            whole = await self._tokenize(call, settings, [(query, document) for document in documents])
            _check_lengths("documents", settings, whole)
            signature = await self._engine.signature(call.model)
            scorer = Scorer(signature, settings)
            scores = await self._run(call, "documents", signature, whole, scorer.output, scorer)
            return Reranked(scores, sum(len(one.ids) for one in whole), sum(one.cut for one in whole))

    def _begin(self, call: Call) -> TextSettings:
        """Wakes the model while its texts are tokenised. Raises for one that takes none."""
        model = self._engine.model(call.model)
        if model.settings.text is None:
            raise InvalidInput(f"model: {call.model} takes no texts: no tokenizer.json lies beside it, and it has no [models.text]")
        call.deadline = call.arrived + model.settings.admission.request_timeout
        self._engine.rouse(call.model)
        return model.settings.text

    async def _tokenize(self, call: Call, settings: TextSettings, rows: Sequence[tuple[str, ...]]) -> list[Tokens]:
        """In one request, which is cut into parts where it is large."""
        if not rows:
            return []
        found: list[Tokens] = []
        limit = {"right": settings.max_tokens, "left": -settings.max_tokens, "refuse": 0}[settings.truncate]
        text = encode_strings([part.encode() for row in rows for part in row])
        inputs = [
            Tensor("text", "BYTES", (len(rows), len(rows[0])), text),
            Tensor("limit", "INT64", (len(rows),), np.full(len(rows), limit, "<i8").tobytes()),
        ]
        take = partial(_read_tokens, found)
        await call.run([Piece(settings.tokenizer_model, inputs, call.arrived, call.deadline, take=take)])
        return found

    async def _run(
        self, call: Call, field: str, signature: Signature, texts: Sequence[Tokens], output: str, read: Callable[[Sequence[Tensor]], Any]
    ) -> list[Any]:
        """What `read` makes of the output of each text. They are queued by length, so that those of a run fill it up the least."""
        results: list[Any] = [None] * len(texts)

        def keep(index: int, outputs: Sequence[Tensor]) -> None:
            results[index] = read(outputs)

        await call.run([
            Piece(
                call.model, inputs_of(signature, texts[index].ids, texts[index].types), call.arrived, call.deadline, [output],
                take=partial(keep, index), field=f"{field}[{index}]",
            )
            for index in sorted(range(len(texts)), key=lambda index: len(texts[index].ids))
        ])
        return results


def _check_count(field: str, count: int) -> None:
    if not count:
        raise InvalidInput.field(field, "at least one text", "an empty list")
    if count > MOST_TEXTS:
        raise TooLarge(f"{field}: expected at most {MOST_TEXTS} texts, got {count}")


def _check_text(field: str, text: str, *, empty: bool = False) -> None:
    if not text and not empty:
        raise InvalidInput.field(field, "a text", "an empty one")
    if len(text) > LONGEST_TEXT // 4 and (size := len(text.encode())) > LONGEST_TEXT:
        raise TooLarge(f"{field}: expected at most {show_bytes(LONGEST_TEXT)} of text, got {show_bytes(size)}")


def _given(settings: TextSettings, index: int, ids: Sequence[int]) -> Tokens:
    """Tokens of the caller's own."""
    field, below = f"input[{index}]", settings.vocabulary or 1 << 31
    if not ids:
        raise InvalidInput.field(field, "at least one token", "an empty list")
    if (wrong := next((token for token in ids if not 0 <= token < below), None)) is not None:
        raise InvalidInput.field(field, f"token ids from 0 to {below - 1}", wrong)
    length = settings.max_tokens
    if len(ids) > length and settings.truncate != "refuse":
        return Tokens(np.array(ids[:length] if settings.truncate == "right" else ids[-length:], "<i4"), None, True)
    return Tokens(np.array(ids, "<i4"), None, False)


def _check_lengths(field: str, settings: TextSettings, texts: Iterable[Tokens]) -> None:
    for index, text in enumerate(texts):
        if not len(text.ids):
            raise InvalidInput.field(f"{field}[{index}]", "a text with a token that the model knows", "one without")
        if len(text.ids) > settings.max_tokens:
            raise InvalidInput.field(f"{field}[{index}]", f"at most {settings.max_tokens} tokens", len(text.ids))


def _read_tokens(found: list[Tokens], outputs: Sequence[Tensor]) -> None:
    ids, types, cut = outputs
    rows = zip(decode_strings(ids.data, ids.shape[0]), decode_strings(types.data, types.shape[0]), bytes(cut.data), strict=True)
    found.extend(Tokens(np.frombuffer(one, "<i4"), np.frombuffer(kind, "<i4"), bool(more)) for one, kind, more in rows)

