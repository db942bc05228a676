"""Looks into files that were never loaded: a few at once, and one for all who ask at the same time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests import python_models
from tests.daemon import running, wait_until
from wakeful.models.errands import LOOKS

TOP = """
import os, pathlib, time

def wait(began, gate):
    began.touch()
    while not gate.exists():
        time.sleep(0.01)
"""


def test_whoever_asks_for_many_models_gets_few_processes(tmp_path: Path) -> None:
    """Twice as many models as looks at once, and each is asked for three times: one look for each, and never more than LOOKS of them."""
    models, began, gate = tmp_path / "models", tmp_path / "began", tmp_path / "gate"
    models.mkdir()
    began.mkdir()
    names = [f"m{number}" for number in range(2 * LOOKS)]
    for name in names:
        path = f'pathlib.Path({str(began)!r}, f"{name}-{{os.getpid()}}")'
        python_models.model(models / name, top=TOP, load=f"wait({path}, pathlib.Path({str(gate)!r}))")
    with running(tmp_path / "daemon", "--models-dir", str(models)) as daemon, ThreadPoolExecutor(3 * len(names)) as pool:
        answers = [pool.submit(daemon.call, "GET", f"/v2/models/{name}") for name in names * 3]
        wait_until(lambda: len(list(began.iterdir())) >= LOOKS, "as many looks as there may be have begun")
        assert daemon.call("GET", "/v2/health/ready")[0] == 200
        assert len(list(began.iterdir())) == LOOKS
        gate.touch()
        assert [answer.result(timeout=60)[0] for answer in answers] == [200] * len(answers)
    assert sorted(path.name.partition("-")[0] for path in began.iterdir()) == sorted(names)
