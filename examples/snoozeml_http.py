"""SnoozeML's SDK over HTTP: python examples/snoozeml_http.py http://127.0.0.1:8080 demo-model input"""

import sys

from snoozeml import SnoozeClient

url, model, name = sys.argv[1:]
with SnoozeClient(url) as client:
    answer = client.infer(model, {name: [[1.0, 2.0, 3.0, 4.0]]})
    for output in answer.outputs:
        print(output.name, answer[output.name].tolist())
    print(", ".join(f"{info.id} is {info.state.value}" for info in client.models.list()))
