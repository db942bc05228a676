"""What texts of unequal length cost: `python -m bench.texts MODEL.onnx TOKENIZER.json`, for an encoder that takes `input_ids` and `attention_mask`.

Nine texts in ten have 8 tokens, the tenth has 200 to 250. They are sent as texts to `/v1/embeddings`, and tokenised to `/v2`, where the same model
is also served with `pad` alone: all lengths share runs then, and the short ones are filled up to the long. What counts on a busy machine are texts
per second of the server's own processor time.
"""

import argparse
import http.client
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

from bench.servers import Wakeful, wait_quiet

Call = tuple[str, object]
"""Path and body."""
CALLERS = 16
CONFIG = """
[[models]]
id = "texts"
path = "{home}/texts.onnx"
batching = "on"
text = {{ tokenizer = "{tokenizer}", max_tokens = 256, max_batch_tokens = {budget} }}

[[models]]
id = "padded"
path = "{home}/padded.onnx"
batching = "on"
pad = {{ axis = 1, mask = "attention_mask" }}
"""
WORDS = ["cat", "mat", "rug", "dog", "stock", "market", "house", "tree", "river", "stone", "cloud", "bread", "water", "light", "paper", "music"]


def texts(count: int, seed: int = 0) -> list[str]:
    chosen = random.Random(seed)
    lengths = [chosen.randint(198, 248) if chosen.random() < 0.1 else 6 for _ in range(count)]
    return [" ".join(chosen.choice(WORDS) for _ in range(length)) for length in lengths]


class Caller:
    """One connection, one call at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.wire = http.client.HTTPConnection(*address)

    def call(self, path: str, body: object) -> None:
        self.wire.request("POST", path, json.dumps(body).encode())
        answer = self.wire.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {data[:300]!r}")


def send(address: tuple[str, int], calls: Sequence[Call]) -> None:
    """A few callers who each send the next call when they have their answer."""
    waiting = list(reversed(calls))

    def work() -> None:
        caller = Caller(address)
        while waiting:
            caller.call(*waiting.pop())

    with ThreadPoolExecutor(CALLERS) as callers:
        for done in [callers.submit(work) for _ in range(CALLERS)]:
            done.result()


def usual(work: Callable[[], object], count: int = 300) -> float:
    """Milliseconds of the lower quartile, in which others who use the machine show the least."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return 1000 * statistics.quantiles(took, n=4)[0]


def tensors(model: str, ids: Sequence[int]) -> Call:
    shape = [1, len(ids)]
    inputs = [("input_ids", list(ids)), ("attention_mask", [1] * len(ids))]
    return f"/v2/models/{model}/infer", {
        "inputs": [{"name": name, "datatype": "INT64", "shape": shape, "data": data} for name, data in inputs],
        "outputs": [{"name": "embedding"}],
    }


def embeddings(given: str | list[str]) -> Call:
    return "/v1/embeddings", {"model": "texts", "input": given, "encoding_format": "base64"}


def measure(model: Path, tokenizer: Path, count: int, rounds: int, budget: int) -> None:
    split = Tokenizer.from_file(str(tokenizer))
    split.no_padding()
    split.no_truncation()
    mixed = texts(count)
    tokens = [split.encode(text).ids for text in mixed]
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(model), options)
    lone = split.encode(texts(1, seed=1)[0]).ids[:8]
    feeds = {"input_ids": np.array([lone]), "attention_mask": np.ones((1, len(lone)), np.int64)}
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        for name in ("texts.onnx", "padded.onnx"):
            (home / name).symlink_to(model.absolute())
        server = Wakeful({})
        server.config.write_text(CONFIG.format(home=home, tokenizer=tokenizer.absolute(), budget=budget))
        with server:
            address, caller = server.address, Caller(server.address)
            ways: dict[str, list[Call]] = {
                "tokens, all lengths in one run": [tensors("padded", ids) for ids in tokens],
                "tokens, by length": [tensors("texts", ids) for ids in tokens],
                "texts, one a call": [embeddings(text) for text in mixed],
                "texts, a hundred a call": [embeddings(mixed[at : at + 100]) for at in range(0, count, 100)],
            }
            short = embeddings("a cat sits on the mat")
            for calls in ways.values():
                send(address, calls[:200])
            wait_quiet(server)
            lone_text = {
                "bare run": usual(lambda: session.run(None, feeds)), "tokenizer": usual(lambda: split.encode("a cat sits on the mat")),
                "through HTTP": usual(lambda: caller.call(*short)), "its tokens through HTTP": usual(lambda: caller.call(*tensors("texts", lone))),
            }
            print("lone text of 8 tokens: " + ", ".join(f"{name} {took:.2f} ms" for name, took in lone_text.items()))
            for name, calls in [*ways.items()] * rounds:
                used, began = server.tree_cpu(), time.perf_counter()
                send(address, calls)
                took, cpu = time.perf_counter() - began, server.tree_cpu() - used
                print(f"{name}: {count / took:.0f} texts/s, {count / cpu:.0f} texts per second of processor", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--count", type=int, default=1000, help="texts of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=2048, help="max_batch_tokens")
    given = parser.parse_args()
    measure(given.model, given.tokenizer, given.count, given.rounds, given.budget)
