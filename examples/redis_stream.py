"""Send a row to a model as a message of a Redis stream, and print the answer.

    python redis_stream.py redis://127.0.0.1:6379 demo-model 5.1 3.5 1.4 0.2
"""

import sys

import numpy as np
from snoozeml.streams import RedisStreamClient

endpoint, model, *numbers = sys.argv[1:]
client = RedisStreamClient(endpoint)
answer = client.infer({"input": np.array([numbers], np.float32)}, model_id=model, reply_to="redis_stream.answers")
print(f"{answer.model_id} in {answer.duration_ms:.1f} ms: {answer['output'].tolist()}")
