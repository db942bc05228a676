"""Doubles numbers, in no time."""


class Model:
    signature = {"inputs": {"x": ("FP32", ["N", 4])}, "outputs": {"y": ("FP32", ["N", 4])}}  # noqa: RUF012 - nobody changes it

    def load(self, model_dir, device):
        pass

    def predict(self, inputs):
        return {"y": 2 * inputs["x"]}
