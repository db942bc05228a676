"""Short days: what must hold is checked by the simulation at every step, the figures here. The long ones are run by hand, see `__main__`."""

from itertools import groupby

import pytest

from tests.cluster.simulation.faults import arrange
from tests.cluster.simulation.report import Report
from tests.cluster.simulation.run import Simulation
from tests.cluster.simulation.shape import Shape


@pytest.mark.parametrize("scheduled", [False, True], ids=["an HPA", "the scheduler"])
def test_an_hour_in_which_everything_goes_wrong(scheduled: bool) -> None:
    simulation = Simulation(Shape(models=300, replicas=15, hours=1.0, seed=1, scheduled=scheduled))
    arrange(simulation)
    report = simulation.run()
    assert not report.faults(), report.text()
    assert report.leaders >= 2, report.text()
    assert report.lost_replanned, report.text()
    assert report.refused, report.text()
    assert min(report.ups, report.downs, report.sleeps, report.wakes) > 0, report.text()
    assert bool(report.server_steps) == scheduled, report.text()


def test_looking_at_fewer_models_decides_the_same() -> None:
    """What makes a day short enough: in a period only those models are looked at that the rules could move."""
    few, all_of_them = (Simulation(Shape(models=60, replicas=6, hours=0.3, seed=3, eager=eager)).run() for eager in (False, True))
    assert few.steps
    assert _by_model(few) == _by_model(all_of_them)


def _by_model(report: Report) -> dict[str, list[int]]:
    """Counts of each model, one after the other."""
    steps = sorted((name, at, target) for at, name, target in report.steps)
    return {name: [target for *_, target in of_it] for name, of_it in groupby(steps, key=lambda step: step[0])}
