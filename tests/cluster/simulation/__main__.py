"""The long run, by hand: `python -m tests.cluster.simulation --hours 24 --seeds 10`. Ends with 1 if a figure is missed."""

import argparse
import sys

from tests.cluster.simulation.faults import arrange
from tests.cluster.simulation.run import Simulation
from tests.cluster.simulation.shape import Shape


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.simulation", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, metavar="N")
    parser.add_argument("--models", type=int, default=1000, metavar="N")
    parser.add_argument("--replicas", type=int, default=50, metavar="N")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs, with seeds from --first on")
    parser.add_argument("--first", type=int, default=1, metavar="N")
    parser.add_argument("--calm", action="store_true", help="nothing goes wrong")
    parser.add_argument("--scheduled", action="store_true", help="the scheduler decides the Server's count, not an HPA")
    parser.add_argument("--eager", action="store_true", help="look at all models in each period")
    asked = parser.parse_args()
    missed = False
    for seed in range(asked.first, asked.first + asked.seeds):
        simulation = Simulation(Shape(asked.models, asked.replicas, asked.hours, seed, asked.scheduled, asked.eager))
        if not asked.calm:
            arrange(simulation)
        report = simulation.run()
        print(f"seed {seed}\n{report.text()}", flush=True)
        for fault in report.faults():
            missed = True
            print(f"MISSED: {fault}", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
