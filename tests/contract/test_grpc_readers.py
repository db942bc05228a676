"""Callers of streams who take no answers."""

from pathlib import Path

import grpc
import pytest

from tests import onnx_models
from tests.daemon import running
from tests.grpc_libraries import without_native
from wakeful.frontends.grpc import oip

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
VALUES = 50_000
ASKED = 150


@pytest.mark.parametrize("library", ["pygrpc-native", "grpcio"])
def test_whoever_leaves_without_its_answers_is_not_waited_for(tmp_path: Path, library: str) -> None:
    models = tmp_path / "models"
    models.mkdir()
    onnx_models.identdyn(models / "identdyn.onnx")
    message = oip.Request(model_name="identdyn", raw_input_contents=[bytes(4 * VALUES)])
    message.inputs.add(name="x", datatype="FP32", shape=[1, VALUES])
    env = without_native(tmp_path) if library == "grpcio" else None
    options = ("--models-dir", str(models), "--client-timeout-secs", "1")
    with running(tmp_path / "daemon", *options, env=env) as daemon, grpc.insecure_channel(daemon.grpc) as channel:
        answers = channel.stream_stream(METHOD)(iter([message.SerializeToString()] * ASKED))
        next(answers)
        channel.close()
        assert daemon.stop() == 0
        assert "cut off" not in daemon.log
        assert "cygrpc" not in daemon.log
