"""How near texts are to the first of them, by OpenAI's client: `openai_embeddings.py http://127.0.0.1:8080 minilm "a cat" "a kitten" "stocks"`."""

import os
import sys

from openai import OpenAI

address, model, *texts = sys.argv[1:]
client = OpenAI(base_url=f"{address}/v1", api_key=os.environ.get("WAKEFUL_API_KEY", "none"))
answer = client.embeddings.create(model=model, input=texts)
first, *others = [entry.embedding for entry in answer.data]
for text, other in zip(texts[1:], others, strict=True):
    print(f"{sum(a * b for a, b in zip(first, other, strict=True)):.2f}  {text}")
print(f"{answer.usage.total_tokens} tokens")
