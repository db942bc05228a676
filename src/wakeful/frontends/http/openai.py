"""Bodies of OpenAI's API, as far as it is about embeddings and models, and of reranking as Cohere, Jina and others have it.

A client that sends more than is known here (`user`, `input_type`) is not refused: such fields change nothing.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from wakeful.errors import InvalidInput
from wakeful.frontends.http import numbers
from wakeful.frontends.http.json_body import parse
from wakeful.tensors import Buffer
from wakeful.text.reading import Array
from wakeful.text.texts import Embedded, Reranked, Text

SDK_HEADER = "x-stainless-lang"
"""Every client library of OpenAI's sends it."""

_encode = msgspec.json.encode
Token = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Embed(msgspec.Struct):
    model: str
    input: str | list[str | Token | list[Token]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None


class _Document(msgspec.Struct):
    text: str


class _Rerank(msgspec.Struct):
    model: str
    query: str
    documents: list[str | _Document] | None = None
    texts: list[str] | None = None
    """What text-embeddings-inference calls the documents."""
    top_n: Annotated[int, msgspec.Meta(ge=1)] | None = None
    return_documents: bool = False


_decode_embed = msgspec.json.Decoder(_Embed).decode
_decode_rerank = msgspec.json.Decoder(_Rerank).decode


class Embed(NamedTuple):
    model: str
    texts: list[Text]
    base64: bool
    dimensions: int | None


class Rerank(NamedTuple):
    model: str
    query: str
    documents: list[str]
    most: int | None
    """Results that are wanted."""
    with_documents: bool


def decode_embed(body: Buffer) -> Embed:
    """Raises InvalidInput naming the field."""
    wish = parse(_decode_embed, body)
    given: list[Any] = [wish.input] if isinstance(wish.input, str) else list(wish.input)
    if given and isinstance(given[0], int):
        given = [given]  # the tokens of one text
    kind: type = type(given[0]) if given else str
    for index, text in enumerate(given):
        if type(text) is not kind:
            raise InvalidInput.field(f"input[{index}]", "what the others are: texts, or lists of tokens", type(text).__name__)
        if isinstance(text, list) and not all(isinstance(token, int) for token in text):
            raise InvalidInput.field(f"input[{index}]", "token ids alone", "something else among them")
    return Embed(wish.model, given, wish.encoding_format == "base64", wish.dimensions)


def decode_rerank(body: Buffer) -> Rerank:
    """Raises InvalidInput naming the field."""
    wish = parse(_decode_rerank, body)
    given = wish.documents if wish.documents is not None else wish.texts
    if given is None:
        raise InvalidInput.field("documents", "a list of texts", "none")
    documents = [document if isinstance(document, str) else document.text for document in given]
    return Rerank(wish.model, wish.query, documents, wish.top_n, wish.return_documents)


def encode_embedded(model: str, result: Embedded, *, base64: bool) -> bytes:
    """Base64 is of little-endian float32, as OpenAI's client reads it."""
    parts = [b'{"object":"list","data":[']
    for index, vector in enumerate(result.vectors):
        shown = b'"%b"' % b64encode(vector.tobytes()) if base64 else _as_json(vector)
        parts.append(b'%b{"object":"embedding","index":%d,"embedding":%b}' % (b"," if index else b"", index, shown))
    parts.append(b'],"model":%b,"usage":%b}' % (_encode(model), _usage(result.tokens)))
    return b"".join(parts)


def _as_json(vector: Array) -> bytes:
    return numbers.encode(vector.tobytes(), "FP32", vector.shape, "embedding")


def _usage(tokens: int) -> bytes:
    return _encode({"prompt_tokens": tokens, "total_tokens": tokens})


def encode_reranked(wish: Rerank, result: Reranked) -> bytes:
    """The best first."""
    best = sorted(range(len(result.scores)), key=lambda index: -result.scores[index])[: wish.most]
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": result.scores[index]} for index in best]
    if wish.with_documents:
        results = [entry | {"document": {"text": wish.documents[entry["index"]]}} for entry in results]
    return _encode({"object": "list", "model": wish.model, "results": results, "usage": msgspec.Raw(_usage(result.tokens))})


def model_entry(name: str, created: int) -> Mapping[str, object]:
    """One model of a listing. `created`: when its file was written, in seconds since 1970."""
    return {"id": name, "object": "model", "created": created, "owned_by": "wakeful"}


def encode_models(models: Sequence[Mapping[str, object]]) -> bytes:
    return _encode({"object": "list", "data": models})
