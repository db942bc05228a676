"""Ray Serve: an application for each model of the settings file."""

import json
import signal
import sys
from pathlib import Path

import ray
from onnx_model import Model, decode, encode
from ray import serve

QUIET = {"log_level": "WARNING", "enable_access_log": False}
OBJECT_STORE_BYTES = 100 << 20  # requests do not go through it; by default it takes a third of the machine


def application(path, settings):
    @serve.deployment(
        num_replicas=settings["replicas"], max_ongoing_requests=settings["ongoing"], ray_actor_options={"num_cpus": 0},
        logging_config=QUIET,
    )
    class Onnx:
        def __init__(self):
            self.model = Model(path)

        @serve.batch(**settings["batching"])
        async def infer(self, members):
            return self.model.run_together(members)

        async def __call__(self, request):
            body = await request.json()
            return {"outputs": encode(await self.infer(decode(body["inputs"])))}

    return Onnx.bind()


if __name__ == "__main__":
    settings = json.loads(Path(sys.argv[1]).read_text())
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    try:
        ray.init(
            include_dashboard=False, _temp_dir=settings["directory"], _node_ip_address="127.0.0.1", object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
        )
        serve.start(http_options={"host": "127.0.0.1", "port": settings["port"]}, logging_config=QUIET)
        for name, path in settings["models"].items():
            serve.run(application(path, settings), name=name, route_prefix=f"/v2/models/{name}/infer")
        signal.pause()
    finally:
        ray.shutdown()
