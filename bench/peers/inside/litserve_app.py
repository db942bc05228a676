"""LitServe: a server with the models of the settings file."""

import json
import sys
from pathlib import Path

import litserve
from onnx_model import Model, decode, encode


class Onnx(litserve.LitAPI):
    def __init__(self, name, path, **batching):
        super().__init__(api_path=f"/v2/models/{name}/infer", **batching)
        self.path = path

    def setup(self, device):
        self.model = Model(self.path)

    def decode_request(self, request):
        return decode(request["inputs"])

    def batch(self, inputs):
        return inputs

    def predict(self, members):
        return self.model.run_together(members)

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return {"outputs": encode(output)}


if __name__ == "__main__":
    settings = json.loads(Path(sys.argv[1]).read_text())
    server = litserve.LitServer(
        [Onnx(name, path, **settings["batching"]) for name, path in settings["models"].items()],
        accelerator="cpu", workers_per_device=settings["workers"], fast_queue=settings["fast_queue"],
    )
    server.run(
        host="127.0.0.1", port=settings["port"], num_api_servers=settings["api_servers"], log_level="warning", generate_client_file=False,
        access_log=False,
    )
