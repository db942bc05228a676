"""BentoML: a service with the models of the settings file, each a batchable endpoint.

A batchable endpoint takes and gives one list, here the request's tensors: BentoML joins the lists of several requests and splits what comes
back, so each model has one input and one output. The answer's list is wrapped as the protocol has it.
"""

import json
import os
from pathlib import Path
from typing import Any

import bentoml
from onnx_model import Model, decode, encode


class Wrapped:
    """ASGI middleware: `[...]` becomes `{"outputs":[...]}`."""

    before, after = b'{"outputs":', b"}"

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        async def wrap(message):
            if message["type"] == "http.response.start" and message["status"] == 200:
                more = len(self.before) + len(self.after)
                message["headers"] = [
                    (name, str(int(value) + more).encode() if name == b"content-length" else value) for name, value in message["headers"]
                ]
            elif message["type"] == "http.response.body" and message["body"][:1] == b"[":
                message["body"] = self.before + message["body"] + self.after
            await send(message)

        await self.app(scope, receive, wrap if scope["type"] == "http" else send)


def endpoint(name, path, batching):
    """A method of the service."""
    def infer(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        outputs = self.models[path].run_together([decode([tensor]) for tensor in inputs])
        return [encode(output)[0] for output in outputs]

    infer.__name__ = f"infer_{name}"
    return bentoml.api(batchable=True, route=f"/v2/models/{name}/infer", **batching)(infer)


def service(settings):
    def load(self):
        self.models = {path: Model(path) for path in settings["models"].values()}

    methods = {f"infer_{name}": endpoint(name, path, settings["batching"]) for name, path in settings["models"].items()}
    made = bentoml.service(
        workers=settings["workers"], traffic={"timeout": 60}, metrics={"enabled": False}, logging={"access": {"enabled": False}},
    )(type("Models", (), {"__init__": load, "__module__": __name__, **methods}))
    made.add_asgi_middleware(Wrapped)
    return made


Models = service(json.loads(Path(os.environ["SETTINGS"]).read_text()))
