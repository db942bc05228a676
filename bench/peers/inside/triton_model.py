"""Triton's Python backend: a model."""

import json

import triton_python_backend_utils as backend
from onnx_model import Model


class TritonPythonModel:
    def initialize(self, args):
        self.model = Model(json.loads(args["model_config"])["parameters"]["path"]["string_value"])

    def execute(self, requests):
        members = [
            {name: backend.get_input_tensor_by_name(request, name).as_numpy() for name in self.model.inputs} for request in requests
        ]
        return [
            backend.InferenceResponse([backend.Tensor(name, array) for name, array in outputs.items()])
            for outputs in self.model.run_together(members)
        ]
