"""Overload for as long as one likes: `python -m tests.overload --seconds 120 --factor 2 --factor 10`. Ends with a table of what was promised and
what came of it; status 1 if a promise was not kept."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.daemon import running
from tests.overload.judgement import table, verdicts
from tests.overload.load import Scene, write_models

CAPACITY_SECONDS = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each load")
    parser.add_argument("--factor", type=float, action="append", help="times the capacity; may be given several times (default: 2 and 10)")
    parser.add_argument("--model", choices=("slow", "ident"), default="slow", help="ident: the daemon itself is the limit (default: slow)")
    parser.add_argument("--connections", type=int, default=1024, help="most at once (default: 1024)")
    options = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with running(directory / "daemon", "--config", str(write_models(directory)), "--no-grpc") as daemon:
            scene = Scene(daemon, options.model, options.connections)
            for factor in options.factor or (2.0, 10.0):
                outcome = scene.overload(factor, scene.capacity(CAPACITY_SECONDS), options.seconds)
                judged = verdicts(outcome)
                kept = kept and all(one.kept for one in judged)
                print(table(f"{options.model}, {factor:g} x capacity, {options.seconds:g} s, up to {options.connections} connections", judged))
                print(flush=True)
        if "Traceback" in daemon.log:
            print(daemon.log)
            kept = False
    sys.exit(not kept)


if __name__ == "__main__":
    main()
