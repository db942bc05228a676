"""The unmodified `openai` client, and reranking, against a real daemon."""

import asyncio
import base64
import json
import random
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from snoozeml import SnoozeClient

from tests import onnx_models, tokenizer_files
from tests.daemon import Daemon, frozen, running, wait_until
from tests.tokenizer_files import WORDS

SHARED = Path(__file__).parents[3] / "shared" / "models"
KEY = "a-key-of-some-length"
TABLE = np.random.default_rng(6).standard_normal((100, 8)).astype(np.float32)
"""Of onnx_models.token_encoder."""
TOLERANCE = 1e-5
"""Of an element of an embedding: sums are made in another order where more rows share a run."""

CONFIG = f"""
[auth]
[[auth.api_keys]]
role = "inference"
key = "{KEY}"

[defaults]
max_loaded_models = 3
min_residency_secs = 0

[[models]]
id = "strict"
path = "strict.onnx"
text = {{ tokenizer = "words.json", truncate = "refuse", max_tokens = 6, pooling = "cls", normalize = false }}

[[models]]
id = "short"
path = "strict.onnx"
text = {{ tokenizer = "words.json", max_tokens = 4, truncate = "left", max_batch_tokens = 8 }}

[[models]]
id = "narrow"
path = "strict.onnx"
text = {{ tokenizer = "words.json" }}
queue_limit = 2
max_batch_size = 1
max_replicas = 1

[[models]]
id = "raw-scores"
path = "raw.onnx"
text = {{ tokenizer = "words.json", activation = "none" }}

[[models]]
id = "broken"
path = "strict.onnx"
text = {{ tokenizer = "broken.json" }}

[[models]]
id = "explosive"
path = "strict.onnx"
text = {{ tokenizer = "explosive.json" }}

[[models]]
id = "wrong"
path = "no_text.onnx"
text = {{ tokenizer = "words.json" }}

[server]
worker_memory = "192MiB"
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("openai")
    models = directory / "models"
    for name, make in (("encoder", onnx_models.token_encoder), ("ranker", onnx_models.cross_encoder)):
        (models / name).mkdir(parents=True)
        make(models / name / "model.onnx")
        tokenizer_files.words(models / name / "tokenizer.json")
    (models / "encoder" / "config.json").write_text('{"vocab_size": 100}')
    onnx_models.token_encoder(models / "strict.onnx")
    onnx_models.cross_encoder(models / "raw.onnx")
    onnx_models.two_inputs(models / "no_text.onnx")
    onnx_models.ident(models / "plain.onnx")
    tokenizer_files.words(models / "words.json")
    tokenizer_files.explosive(models / "explosive.json")
    (models / "broken.json").write_text('{"model": ')
    (models / "models.toml").write_text(CONFIG)
    with running(directory / "daemon", "--models-dir", str(models), "--no-grpc") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{daemon.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def call(daemon: Daemon, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    return daemon.call(method, path, body, {"authorization": f"Bearer {KEY}"})


def tokenizer_of(daemon: Daemon, model: str) -> str:
    (name,) = (shown["id"] for shown in call(daemon, "GET", "/v1/models")[1] if shown["description"] == f"the tokenizer of {model}")
    return str(name)


def embedding(*words: str) -> np.ndarray:
    """What `encoder` makes of a text."""
    mean = TABLE[[WORDS.index(word) for word in ("[CLS]", *words, "[SEP]")]].mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean))


def vectors(answer: Any) -> np.ndarray:
    return np.array([entry.embedding for entry in answer.data])


# ── embeddings ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_text_and_several(client: OpenAI) -> None:
    one = client.embeddings.create(model="encoder", input="the cat sits")
    assert (one.object, one.model, one.data[0].object, one.data[0].index) == ("list", "encoder", "embedding", 0)
    assert (one.usage.prompt_tokens, one.usage.total_tokens) == (5, 5)
    assert np.allclose(vectors(one), [embedding("the", "cat", "sits")], atol=TOLERANCE)
    several = client.embeddings.create(model="encoder", input=["dog", "the cat sits"], user="somebody")
    assert [entry.index for entry in several.data] == [0, 1]
    assert several.usage.prompt_tokens == 3 + 5
    assert np.allclose(vectors(several), [embedding("dog"), embedding("the", "cat", "sits")], atol=TOLERANCE)


def test_tokens_are_taken_as_they_are(client: OpenAI) -> None:
    texts = vectors(client.embeddings.create(model="encoder", input=["cat", "dog mat"]))
    lists = [[WORDS.index(word) for word in text] for text in (["[CLS]", "cat", "[SEP]"], ["[CLS]", "dog", "mat", "[SEP]"])]
    answer = client.embeddings.create(model="encoder", input=lists)
    assert answer.usage.prompt_tokens == 7
    assert np.allclose(vectors(answer), texts, atol=TOLERANCE)
    assert np.allclose(vectors(client.embeddings.create(model="encoder", input=lists[0])), texts[:1], atol=TOLERANCE)


def test_base64_is_little_endian_float32(daemon: Daemon, client: OpenAI) -> None:
    body = {"model": "encoder", "input": "cat dog"}
    _, plain = call(daemon, "POST", "/v1/embeddings", body)
    _, packed = call(daemon, "POST", "/v1/embeddings", body | {"encoding_format": "base64"})
    numbers = np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4")
    assert np.array_equal(numbers, np.array(plain["data"][0]["embedding"], "<f4"))
    assert np.allclose(vectors(client.embeddings.create(model="encoder", input="cat dog", encoding_format="float")), [numbers], atol=TOLERANCE)


def test_fewer_dimensions_are_the_first_ones_made_as_long_as_1(client: OpenAI) -> None:
    (whole,) = vectors(client.embeddings.create(model="encoder", input="cat"))
    (cut,) = vectors(client.embeddings.create(model="encoder", input="cat", dimensions=3))
    assert np.allclose(cut, whole[:3] / np.linalg.norm(whole[:3]), atol=TOLERANCE)
    (same,) = vectors(client.embeddings.create(model="encoder", input="cat", dimensions=8))
    assert np.allclose(same, whole, atol=TOLERANCE)
    with pytest.raises(openai.BadRequestError, match="dimensions: expected at most the 8 that the model has, got 9"):
        client.embeddings.create(model="encoder", input="cat", dimensions=9)


def test_pooling_and_length_are_as_the_settings_say(client: OpenAI) -> None:
    (vector,) = vectors(client.embeddings.create(model="strict", input="cat"))
    rows = TABLE[[WORDS.index(word) for word in ("[CLS]", "cat", "[SEP]")]]
    assert np.allclose(vector, rows[0] + rows.mean(axis=0), atol=TOLERANCE)


def texts_of_all_lengths(count: int, seed: int) -> list[list[str]]:
    chosen = random.Random(seed)
    words = WORDS[4:]
    return [[chosen.choice(words) for _ in range(chosen.choice([1, 2, 3, 5, 9, 40, 150]))] for _ in range(count)]


def test_the_answer_in_company_is_the_answer_alone(client: OpenAI) -> None:
    """Hundreds of texts of one call share runs with those of other callers."""
    texts = texts_of_all_lengths(400, seed=1)
    calls = [texts[:200], *([text] for text in texts[200:230]), texts[230:]]

    def embed(call: Sequence[list[str]]) -> np.ndarray:
        return vectors(client.embeddings.create(model="encoder", input=[" ".join(text) for text in call]))

    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(embed, calls))
    for asked, answer in zip(calls, answers, strict=True):
        assert np.allclose(answer, [embedding(*text) for text in asked], atol=TOLERANCE)


def test_tokens_over_the_other_protocol_join_in(daemon: Daemon) -> None:
    """The server makes the mask where it is not sent, as it fills up shorter texts by itself."""
    ids = [WORDS.index(word) for word in ("[CLS]", "cat", "[SEP]")]
    body = {"inputs": [{"name": "input_ids", "datatype": "INT64", "shape": [1, 3], "data": ids}], "outputs": [{"name": "pooler_output"}]}
    status, answer = call(daemon, "POST", "/v2/models/encoder/infer", body)
    assert status == 200
    assert np.allclose(answer["outputs"][0]["data"], TABLE[ids].mean(axis=0), atol=TOLERANCE)


def test_runs_are_shared_and_keep_to_their_budget(daemon: Daemon, client: OpenAI) -> None:
    client.embeddings.create(model="short", input="cat")
    stats = call(daemon, "GET", "/v2/models/short/stats")[1]["model_stats"][0]
    answer = client.embeddings.create(model="short", input=["cat dog"] * 50)
    assert answer.usage.prompt_tokens == 200
    after = call(daemon, "GET", "/v2/models/short/stats")[1]["model_stats"][0]
    assert after["inference_count"] - stats["inference_count"] == 50
    assert after["execution_count"] - stats["execution_count"] == 50, "8 tokens are one text of up to 8"


def test_a_text_that_is_too_long_is_cut_and_the_answer_says_so(daemon: Daemon, client: OpenAI) -> None:
    answer = client.embeddings.with_raw_response.create(model="short", input=["b c d e", "d e"])
    assert answer.headers["x-wakeful-truncated"] == "1"
    first, second = vectors(answer.parse())
    assert np.allclose(first, second, atol=TOLERANCE), "the left end was cut off"
    assert "x-wakeful-truncated" not in client.embeddings.with_raw_response.create(model="short", input="d e").headers
    tokens = [WORDS.index(word) for word in ("b", "[CLS]", "d", "e", "[SEP]")]
    assert np.allclose(vectors(client.embeddings.create(model="short", input=tokens)), [second], atol=TOLERANCE)


@pytest.mark.parametrize(
    ("model", "wrong", "message", "field"),
    [
        ("strict", ["cat", "dog", "cat dog mat", "b c d e f g"], "input[3]: expected at most 6 tokens, got 8", "input[3]"),
        ("strict", [[1], [1] * 7], "input[1]: expected at most 6 tokens, got 7", "input[1]"),
        ("encoder", [], "input: expected at least one text, got an empty list", "input"),
        ("encoder", ["cat", ""], "input[1]: expected a text, got an empty one", "input[1]"),
        ("encoder", ["cat", 3], "input[1]: expected what the others are: texts, or lists of tokens, got int", "input[1]"),
        ("encoder", [[1], [1, "cat"]], "input[1][1]: expected `int`, got `str`", "input[1]"),
        ("encoder", [1, "cat"], "input[0]: expected token ids alone, got something else among them", "input[0]"),
        ("encoder", [[1], []], "input[1]: expected at least one token, got an empty list", "input[1]"),
        ("encoder", [[1], [2, 100]], "input[1]: expected token ids from 0 to 99, got 100", "input[1]"),
        ("encoder", [[-1]], "input[0][0]: expected `int` >= 0", "input[0]"),
        ("encoder", 3, "input: expected", "input"),
        ("plain", "cat", "model: plain takes no texts", "model"),
        ("wrong", "cat", "model: ", "model"),
    ],
)
def test_what_is_wrong_is_refused_and_named(daemon: Daemon, model: str, wrong: Any, message: str, field: str) -> None:
    status, body = call(daemon, "POST", "/v1/embeddings", {"model": model, "input": wrong})
    assert status == 400
    error = body["error"]
    assert message in error["message"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_input")
    assert error["param"].startswith(field)


def test_too_many_and_too_much(daemon: Daemon) -> None:
    status, body = call(daemon, "POST", "/v1/embeddings", {"model": "encoder", "input": ["a"] * 2049})
    assert (status, body["error"]["message"]) == (413, "input: expected at most 2048 texts, got 2049")
    status, body = call(daemon, "POST", "/v1/embeddings", {"model": "encoder", "input": ["a", "ü" * 600_000]})
    assert status == 413
    assert body["error"]["message"].startswith("input[1]: expected at most 1.0 MiB of text")


def test_a_wrong_text_fails_nobody_else(client: OpenAI) -> None:
    """They are tokenised together, and would run together."""
    asyncio.run(_among_neighbours(client))


async def _among_neighbours(client: OpenAI) -> None:
    async with AsyncOpenAI(base_url=client.base_url, api_key=KEY, max_retries=0) as ours:
        results: list[Any] = await asyncio.gather(
            *(ours.embeddings.create(model="strict", input=["cat"] if turn % 3 else ["cat", "b c d e f g h"]) for turn in range(30)),
            return_exceptions=True,
        )
    assert [isinstance(result, openai.BadRequestError) for result in results] == [turn % 3 == 0 for turn in range(30)]
    good = vectors(results[1])
    assert all(np.allclose(vectors(result), good, atol=TOLERANCE) for turn, result in enumerate(results) if turn % 3)


def test_a_call_is_not_refused_for_its_own_length(client: OpenAI) -> None:
    """Two requests may wait, and it takes a hundred."""
    answer = client.embeddings.create(model="narrow", input=["cat", "dog"] * 50)
    assert np.allclose(vectors(answer), [embedding("cat"), embedding("dog")] * 50, atol=TOLERANCE)


def test_the_whole_call_is_one_request(daemon: Daemon, client: OpenAI) -> None:
    def count(outcome: str) -> float:
        return daemon.metric("wakeful_requests_total", model="encoder", protocol="openai", outcome=outcome)

    good, bad = count("ok"), count("invalid_input")
    client.embeddings.create(model="encoder", input=["cat"] * 300)
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="encoder", input=["cat", ""])
    assert (count("ok"), count("invalid_input")) == (good + 1, bad + 1)
    assert daemon.metric("wakeful_requests_total", model="encoder", protocol="") == 0


def test_who_leaves_is_waited_for_by_nothing(daemon: Daemon, client: OpenAI) -> None:
    client.embeddings.create(model="encoder", input="cat")
    body = json.dumps({"model": "encoder", "input": ["cat"] * 500}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    with frozen(*daemon.replicas()), socket.create_connection((daemon.host, daemon.port)) as leaver:
        leaver.sendall(head.encode() + body)
        names = ("encoder", tokenizer_of(daemon, "encoder"))
        wait_until(lambda: any(daemon.metric("wakeful_queue_requests", model=name) for name in names), "it waits")
    wait_until(lambda: daemon.metric("wakeful_queue_requests", model="encoder") == 0, "nothing is left of it")
    assert np.allclose(vectors(client.embeddings.create(model="encoder", input="cat")), [embedding("cat")], atol=TOLERANCE)


# ── tokenizers ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_broken_tokenizer_is_named(client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match=r"broken\.json is no tokenizer: ") as caught:
        client.embeddings.create(model="broken", input="cat")
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"]


def test_a_tokenizer_that_takes_all_memory_takes_itself(daemon: Daemon, client: OpenAI) -> None:
    assert len(client.embeddings.create(model="explosive", input="cat").data) == 1
    with pytest.raises(openai.InternalServerError):
        client.embeddings.create(model="explosive", input="cat!")
    assert len(client.embeddings.create(model="explosive", input="cat").data) == 1
    assert np.allclose(vectors(client.embeddings.create(model="encoder", input="cat")), [embedding("cat")], atol=TOLERANCE)


def test_a_tokenizer_is_a_model_that_is_no_ones_business(daemon: Daemon, client: OpenAI) -> None:
    client.embeddings.create(model="encoder", input="cat")
    assert tokenizer_of(daemon, "encoder").startswith("tokenizers/encoder-")
    assert not any("tokenizer" in model.id for model in client.models.list())
    assert "tokenizers" not in Path(f"/proc/{daemon.process.pid}/maps").read_text(), "the daemon has not imported it"


def test_what_comes_later_is_found_with_its_tokenizer(tmp_path: Path) -> None:
    def embed(daemon: Daemon, text: str) -> tuple[int, Any]:
        return daemon.call("POST", "/v1/embeddings", {"model": "late", "input": text})

    models = tmp_path / "models"
    models.mkdir()
    with running(tmp_path / "daemon", "--models-dir", str(models), "--no-grpc") as daemon:
        onnx_models.token_encoder(models / "late.onnx")
        tokenizer_files.words(models / "late-tokenizer.json")
        assert embed(daemon, "cat")[0] == 404
        assert daemon.call("POST", "/v1/models/refresh")[0] == 200
        assert embed(daemon, "cat")[1]["usage"]["total_tokens"] == 3
        (models / "late-tokenizer.json").write_text("{}")
        daemon.call("POST", "/v1/models/refresh")
        status, body = embed(daemon, "cat")
        assert (status, "late-tokenizer.json is no tokenizer" in body["error"]["message"]) == (503, True)
        tokenizer_files.words(models / "late-tokenizer.json")
        daemon.call("POST", "/v1/models/refresh")
        assert embed(daemon, "cat dog")[1]["usage"]["total_tokens"] == 4
        for file in models.iterdir():
            file.unlink()
        daemon.call("POST", "/v1/models/refresh")
        assert daemon.call("GET", "/v1/models") == (200, [])


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_listing_serves_both_clients(daemon: Daemon, client: OpenAI) -> None:
    ids = {model.id for model in client.models.list()}
    assert {"encoder", "ranker", "strict", "plain"} <= ids
    with SnoozeClient(daemon.url, api_key=KEY) as other:
        assert ids <= {model.id for model in other.models.list()}
    listing = call(daemon, "GET", "/openai/v1/models")[1]
    assert listing["object"] == "list"
    assert {entry["id"] for entry in listing["data"]} == ids
    model = client.models.retrieve("encoder")
    assert (model.id, model.object, model.owned_by) == ("encoder", "model", "wakeful")
    assert model.created > 1_500_000_000


def test_every_route_has_the_base_path_of_its_own_too(daemon: Daemon) -> None:
    with OpenAI(base_url=f"{daemon.url}/openai/v1", api_key=KEY, max_retries=0) as client:
        assert np.allclose(vectors(client.embeddings.create(model="encoder", input="cat")), [embedding("cat")], atol=TOLERANCE)
        assert client.models.retrieve("encoder").id == "encoder"
        assert "encoder" in {model.id for model in client.models.list()}


def test_errors_are_the_clients_own(daemon: Daemon, client: OpenAI) -> None:
    asked: list[Callable[[], object]] = [lambda: client.models.retrieve("nobody"), lambda: client.embeddings.create(model="nobody", input="cat")]
    for ask in asked:
        with pytest.raises(openai.NotFoundError, match="no model is called 'nobody'") as caught:
            ask()
        assert (caught.value.type, caught.value.code) == ("invalid_request_error", "not_found")
    with OpenAI(base_url=f"{daemon.url}/v1", api_key="wrong", max_retries=0) as stranger:
        asked = [stranger.models.list, lambda: stranger.embeddings.create(model="encoder", input="cat")]
        for ask in asked:
            with pytest.raises(openai.AuthenticationError):
                ask()


# ── reranking ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def score(document: str) -> float:
    """What `raw-scores` makes of it, whatever the query."""
    ids = [WORDS.index(word) for word in (*document.split(), "[SEP]")]
    return float(np.linspace(4, -4, 100, dtype=np.float32)[ids].mean())


def test_the_best_document_comes_first(daemon: Daemon) -> None:
    documents = ["z z z", "cat", "m " * 60, "dog sits", ""]
    status, answer = call(daemon, "POST", "/v1/rerank", {"model": "ranker", "query": "the mat", "documents": documents})
    assert status == 200
    expected = sorted(range(5), key=lambda index: -score(documents[index]))
    assert [result["index"] for result in answer["results"]] == expected
    for result in answer["results"]:
        assert result["relevance_score"] == pytest.approx(1 / (1 + np.exp(-score(documents[result["index"]]))), abs=TOLERANCE)
        assert "document" not in result
    assert answer["usage"]["total_tokens"] == sum(len(document.split()) + 5 for document in documents)


def test_the_forms_of_others(daemon: Daemon) -> None:
    body = {"model": "raw-scores", "query": "cat", "documents": [{"text": "z", "title": "last"}, "b"], "top_n": 1, "return_documents": True}
    (result,) = call(daemon, "POST", "/v1/rerank", body)[1]["results"]
    assert result == {"index": 1, "relevance_score": pytest.approx(score("b"), abs=TOLERANCE), "document": {"text": "b"}}
    results = call(daemon, "POST", "/openai/v1/rerank", {"model": "raw-scores", "query": "cat", "texts": ["z", "b"]})[1]["results"]
    assert [result["index"] for result in results] == [1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"documents": []}, "documents: expected at least one text"), ({"documents": None}, "documents: expected a list of texts, got none"),
        ({"query": ""}, "query: expected a text"), ({"documents": ["b", {"txt": "c"}]}, "documents[1]: missing required field `text`"),
        ({"top_n": 0}, "top_n: expected `int` >= 1"), ({"model": "encoder"}, "model: expected a cross-encoder"),
    ],
)
def test_what_cannot_be_ranked_is_told(daemon: Daemon, change: dict[str, Any], message: str) -> None:
    status, body = call(daemon, "POST", "/v1/rerank", {"model": "ranker", "query": "cat", "documents": ["b"]} | change)
    assert status == 400
    assert body["error"]["message"].startswith(message[0].upper() + message[1:]) or message in body["error"]["message"]


# ── a real one ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/models is not here: no real encoder to try")
def test_a_real_encoder(tmp_path: Path) -> None:
    for name in ("all-minilm-l6-v2-int8.onnx", "all-minilm-l6-v2-tokenizer.json"):
        shutil.copy(SHARED / name, tmp_path)
    entry = '[[models]]\nid = "minilm"\npath = "all-minilm-l6-v2-int8.onnx"\ntext = { tokenizer = "all-minilm-l6-v2-tokenizer.json" }\n'
    (tmp_path / "models.toml").write_text(entry)
    texts = ["a cat sits on the mat", "a kitten rests on a rug", "stock markets fell sharply"]
    with (
        running(tmp_path / "daemon", "--models-dir", str(tmp_path), "--no-grpc") as daemon,
        OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client,
    ):
        answer = client.embeddings.create(model="minilm", input=texts)
    cat, kitten, markets = vectors(answer)
    assert np.allclose(np.linalg.norm([cat, kitten, markets], axis=1), 1, atol=TOLERANCE)
    assert cat @ kitten == pytest.approx(0.65, abs=0.05)
    assert cat @ markets < 0.1
    assert answer.usage.prompt_tokens == 8 + 8 + 6
