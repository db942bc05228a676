"""A PyTorch model on whatever device it is given: this directory, with the `model.pt` that `torch.jit.save` wrote, is a model for Wakeful.

PyTorch need not be where Wakeful is: a `wakeful_model.toml` beside this file may name the interpreter that has it:
python = "/opt/torch/bin/python"
"""

from pathlib import Path

import torch


class Model:
    signature = {"inputs": {"x": ("FP32", ["N", 4])}, "outputs": {"y": ("FP32", ["N", 2])}}  # noqa: RUF012 - nobody changes it

    def load(self, model_dir, device):
        self.device = torch.device(device)
        self.network = torch.jit.load(Path(model_dir) / "model.pt", map_location=self.device).eval()

    def predict(self, inputs):
        with torch.inference_mode():
            x = torch.from_numpy(inputs["x"]).to(self.device)  # on the CPU no copy: the request's own bytes
            return {"y": self.network(x).cpu().numpy()}
