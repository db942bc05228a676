"""SnoozeML's SDK over gRPC: python examples/snoozeml_grpc.py http://127.0.0.1:8080 127.0.0.1:50051 demo-model input"""

import sys

from snoozeml import SnoozeClient

http, grpc, model, name = sys.argv[1:]
with SnoozeClient(http_endpoint=http, grpc_endpoint=grpc, use_grpc=True) as client:
    answer = client.infer(model, {name: [[1.0, 2.0, 3.0, 4.0]]}, client_timeout_ms=30_000)
    for output in answer.outputs:
        print(output.name, answer[output.name].tolist())
