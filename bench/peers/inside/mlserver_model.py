"""MLServer: a custom runtime."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
from onnx_model import Model


class Onnx(MLModel):
    async def load(self):
        self.model = Model(self.settings.parameters.uri)
        return True

    async def predict(self, payload):
        outputs = self.model.run({tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs})
        return InferenceResponse(
            id=payload.id, model_name=self.name, model_version=self.version,
            outputs=[NumpyCodec.encode_output(name, array) for name, array in outputs.items()],
        )
