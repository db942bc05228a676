"""The script as it stands, against a real Redis server and a real daemon."""

import re
import subprocess
import sys
from pathlib import Path

from tests.brokers import redis_server
from tests.daemon import running

SCRIPT = Path(__file__).parents[2] / "examples" / "redis_stream.py"


def test_it_prints_the_answer(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as server:
        config = tmp_path / "models.toml"
        config.write_text(f'[[streams]]\nendpoint = "{server.endpoint}"\n')
        with running(tmp_path, "--demo", "--config", str(config)):
            command = [sys.executable, str(SCRIPT), server.endpoint, "demo-model", "5.1", "3.5", "1.4", "0.2"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(r"demo-model in [\d.]+ ms: \[\[[-\d.e, ]+\]\]\n", done.stdout)
