"""Ask the pipeline of models.toml: python ask.py URL WORD..."""

import json
import sys
import urllib.request

url, *words = sys.argv[1:]
body = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [len(words)], "data": words}]}
with urllib.request.urlopen(f"{url}/v2/models/review/infer", json.dumps(body).encode()) as answer:
    outputs = {output["name"]: output["data"] for output in json.load(answer)["outputs"]}
for word, score, label in zip(words, outputs["SCORE"], outputs["LABEL"], strict=True):
    print(f"{word}: {label} ({score:.2f})")
