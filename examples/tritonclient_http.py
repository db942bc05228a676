"""tritonclient over HTTP: python examples/tritonclient_http.py 127.0.0.1:8080 demo-model"""

import sys

import numpy as np
import tritonclient.http as triton

address, model = sys.argv[1:]
with triton.InferenceServerClient(address) as client:
    spec = client.get_model_metadata(model)["inputs"][0]  # does not wake the model
    shape = [max(size, 1) for size in spec["shape"]]
    given = triton.InferInput(spec["name"], shape, spec["datatype"])
    given.set_data_from_numpy(np.ones(shape, triton.triton_to_np_dtype(spec["datatype"])))  # as bytes; as JSON with binary_data=False
    result = client.infer(model, [given], timeout=30_000_000)
    for output in result.get_response()["outputs"]:
        print(output["name"], result.as_numpy(output["name"]).tolist())
