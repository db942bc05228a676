"""examples/pipeline as it stands: the models are made, the pipeline is served, the script asks it."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.daemon import running

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"


def test_it_runs(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "models.toml", tmp_path)
    subprocess.run([sys.executable, EXAMPLE / "make_models.py", tmp_path], check=True, capture_output=True)
    with running(tmp_path / "d", "--config", str(tmp_path / "models.toml")) as daemon:
        command = [sys.executable, str(EXAMPLE / "ask.py"), daemon.url, "great", "awful", "so-so"]
        asked = subprocess.run(command, check=True, capture_output=True, text=True)
        assert asked.stdout == "great: liked (0.88)\nawful: not liked (0.05)\nso-so: not liked (0.50)\n"
        assert all(daemon.call("GET", f"/v2/models/{name}/ready")[0] == 200 for name in ("tokenize", "encoder", "classifier", "review"))
