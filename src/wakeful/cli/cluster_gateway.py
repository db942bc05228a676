"""`wakeful cluster gateway`: the helper beside a gateway's Envoy, until it is told to stop."""

import asyncio
import signal
import time
from argparse import Namespace
from typing import TYPE_CHECKING

from wakeful.cli.cluster_extra import complain_of_missing
from wakeful.cli.cluster_gateway_options import Missing, add_arguments, gateway_of
from wakeful.cli.descriptors import allow_descriptors
from wakeful.cli.parser import DONE, WRONG_USE, complain

if TYPE_CHECKING:
    from wakeful.cluster.gateway.bootstrap import Gateway

__all__ = ["add_arguments", "run"]


def run(arguments: Namespace) -> int:
    try:
        import aiohttp  # noqa: F401, PLC0415 - an extra, and help does without
    except ImportError as error:
        return complain_of_missing("what a gateway needs", error)
    import uvloop  # noqa: PLC0415 - help does without

    try:
        gateway = gateway_of(arguments)
    except Missing as error:
        complain(str(error))
        return WRONG_USE
    allow_descriptors()
    try:
        uvloop.run(_serve(gateway, arguments.started))
    except OSError as error:
        complain(f"cannot start: {error}", ("hint", "--helper-port and --helper-grpc-port choose other ports, --ca-file another file"))
        return WRONG_USE
    return DONE


async def _serve(gateway: "Gateway", began: float) -> None:
    from wakeful.cluster.gateway.helper import Helper  # noqa: PLC0415 - an extra, and help does without
    from wakeful.telemetry.logs import Log, capture_logging  # noqa: PLC0415 - help does without

    log = Log()
    capture_logging(log)
    started, stop = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    helper = Helper(gateway)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(helper.run(started, stop))
            await started.wait()
            took = time.monotonic() - began
            log.write("ready", "gateway", f"helps Envoy on port {gateway.listen.port}: {helper.http.port}, gRPC {helper.grpc.port} ({took:.1f} s)")
    except* OSError as group:
        raise _first(group) from None
    finally:
        log.close()


def _first(error: BaseException) -> BaseException:
    """What a TaskGroup has wrapped."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
