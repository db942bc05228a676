"""The documents that fit a query best come first, by a cross-encoder: `rerank.py http://127.0.0.1:8080 ranker "who sat?" "a cat sat" "stocks"`."""

import json
import sys
import urllib.request

address, model, query, *documents = sys.argv[1:]
body = {"model": model, "query": query, "documents": documents, "return_documents": True}
with urllib.request.urlopen(f"{address}/v1/rerank", json.dumps(body).encode()) as answer:
    for result in json.load(answer)["results"]:
        print(f"{result['relevance_score']:.3f}  {result['document']['text']}")
