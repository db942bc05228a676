"""Turns one model file into ONNX: `python -m wakeful.worker.convert_main CHANNEL ORDER`, where CHANNEL is an inherited descriptor that takes one JSON
object a line and ORDER is a `runtime.conversion.Order` as JSON.

To open a pickle is to run the program in it, so the process gives up what it does not need first: see `give_up`.
"""

import os
import sys
import sysconfig
from pathlib import Path

import msgspec

from wakeful.errors import WakefulError
from wakeful.runtime.conversion import Converted, Failed, Order, Step
from wakeful.runtime.messages import Confinement
from wakeful.worker import conversion, landlock
from wakeful.worker.confinement import confine

LARGEST_FILE = 2 * 1024**3
"""Bytes: as much as one ONNX file can be."""
_SYSTEM = (
    "/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime", "/dev/null",
    "/dev/urandom", "/dev/zero", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu",
)


class Channel:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, word: Step | Converted | Failed) -> None:
        os.write(self._descriptor, msgspec.json.encode(word) + b"\n")

    def step(self, text: str) -> None:
        self.say(Step(text))


def give_up(order: Order) -> tuple[str, ...]:
    """No network, no new privileges, no core dump, limits of memory and of files; nothing on disk but Python, its libraries and the model can be
    read, and only the directory of the result be written. Returns what had to be kept, with reasons."""
    kept = confine(Confinement(largest_file=LARGEST_FILE, memory=order.memory))
    readable = {*_SYSTEM, sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), *(path for path in sys.path if path), order.source}
    try:
        landlock.restrict([Path(path) for path in sorted(readable)], [Path(order.output).parent])
    except OSError as error:
        return (*kept, f"the files of this user (the kernel has no Landlock: {error.strerror})")
    return kept


def main() -> None:
    channel, order = Channel(int(sys.argv[1])), msgspec.json.decode(sys.argv[2], type=Order)
    os.set_inheritable(int(sys.argv[1]), False)
    try:
        channel.step("importing the libraries")
        conversion.import_libraries(order)
        kept = give_up(order)
        channel.say(conversion.converted(order, channel.step, kept))
    except WakefulError as error:
        channel.say(Failed(error.message))
    except MemoryError:
        channel.say(Failed(f"it takes more memory than it may have ({order.memory / 1024**2:.0f} MiB)"))
    except Exception as error:  # noqa: BLE001 - a pickle, and a converter, raise whatever they like
        channel.say(Failed(f"{type(error).__name__}: {' '.join(str(error).split())[:1000]}"))


if __name__ == "__main__":
    main()
