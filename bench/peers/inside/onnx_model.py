"""The model as every peer runs it, and the protocol for those that do not speak it. Needs NumPy and ONNX Runtime alone."""

import itertools

import numpy as np
import onnxruntime

Arrays = dict[str, np.ndarray]

NUMPY = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "INT8": "i1", "INT16": "i2", "INT32": "i4", "INT64": "i8",
    "FP16": "f2", "FP32": "f4", "FP64": "f8",
}
DATATYPE = {np.dtype(code): name for name, code in NUMPY.items()}


class Model:
    """A session with one thread that does not spin: the same for every peer."""

    def __init__(self, path: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [port.name for port in self.session.get_inputs()]
        self.outputs = [port.name for port in self.session.get_outputs()]

    def run(self, feeds: Arrays) -> Arrays:
        return dict(zip(self.outputs, self.session.run(None, feeds), strict=True))

    def run_together(self, members: list[Arrays]) -> list[Arrays]:
        """Several requests as one run, joined and split along axis 0."""
        if len(members) == 1:
            return [self.run(members[0])]
        outputs = self.run({name: np.concatenate([member[name] for member in members]) for name in self.inputs})
        ends = itertools.accumulate(len(member[self.inputs[0]]) for member in members)
        bounds = itertools.pairwise([0, *ends])
        return [{name: array[start:end] for name, array in outputs.items()} for start, end in bounds]


def decode(tensors: list[dict]) -> Arrays:
    """The `inputs` of a request."""
    return {tensor["name"]: np.array(tensor["data"], NUMPY[tensor["datatype"]]).reshape(tensor["shape"]) for tensor in tensors}


def encode(arrays: Arrays) -> list[dict]:
    """The `outputs` of an answer."""
    return [
        {"name": name, "datatype": DATATYPE[array.dtype], "shape": list(array.shape), "data": array.ravel().tolist()}
        for name, array in arrays.items()
    ]
