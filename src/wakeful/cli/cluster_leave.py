"""`wakeful cluster leave`: the PreStop hook of a gateway's pod. Envoy tells callers to go elsewhere, and ends when all that it has is answered.

Envoy itself would end at once when it is told to, with every connection. So it is a sidecar, which Kubernetes ends after the helper, and the helper's
end waits here. Kubernetes also calls the hook when it is about to restart a helper that does not answer: then Envoy goes on, as if nothing were.
"""

import re
import time
import urllib.request
from argparse import Namespace
from urllib.error import HTTPError

from wakeful.cli.parser import DONE, NO, Parser, complain

FORGET_SECONDS = 15.0
"""Until all Services have forgotten a pod that leaves: requests come meanwhile."""
PAUSE = 0.5
HUNG_SECONDS = 10.0
"""Without an answer the helper is hung, and it is not the pod that ends."""
ACTIVE = re.compile(r"^http\.requests\.downstream_rq_active: (\d+)$", re.MULTILINE)


def add_arguments(parser: Parser) -> None:
    parser.epilog = None  # the file of a daemon has no say
    parser.add_argument("--admin-port", metavar="PORT", type=int, default=9901, help="of Envoy's admin interface, on loopback (default 9901)")
    parser.add_argument("--helper-port", metavar="PORT", type=int, default=8081, help="of the helper, on loopback (default 8081)")
    parser.add_argument("--forget-seconds", metavar="SECONDS", type=float, default=FORGET_SECONDS,
                        help=f"stay at least so long, until nobody sends requests here any more (default {FORGET_SECONDS:g})")
    parser.add_argument("--seconds", metavar="SECONDS", type=float, default=float("inf"), help="give up after so long (default: when it is killed)")


def run(arguments: Namespace) -> int:
    began = time.monotonic()
    if _is_hung(arguments.helper_port):
        complain(f"the helper has not answered for {HUNG_SECONDS:g} s: it is restarted, and Envoy goes on")
        return NO
    try:
        _active(arguments.admin_port)  # an Envoy that stands still would drain when it goes on, perhaps for a helper that was only restarted
        # With skip_exit the listener stays: whoever has not heard yet is answered, and told to close its connection.
        _ask(arguments.admin_port, "/drain_listeners?graceful&skip_exit", b"")
        while True:
            spent, active = time.monotonic() - began, _active(arguments.admin_port)
            if spent >= arguments.forget_seconds and not active:
                print(f"{spent:.0f} s: all requests are answered", flush=True)
                return DONE
            if spent >= arguments.seconds:
                complain(f"{active} requests are still open after {spent:.0f} s, and end with the pod")
                return NO
            time.sleep(PAUSE)
    except (OSError, ValueError) as error:
        hint = ("hint", "--admin-port is as it was for wakeful cluster bootstrap")
        complain(f"Envoy cannot be asked at 127.0.0.1:{arguments.admin_port}: {error}", hint)
        return NO


def _is_hung(port: int) -> bool:
    """One that is not there is not hung."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/live", timeout=HUNG_SECONDS):
            return False
    except HTTPError:
        return False
    except OSError as error:  # one that ends while it is asked is the one that is restarted
        return not isinstance(getattr(error, "reason", error), ConnectionRefusedError)


def _active(port: int) -> int:
    """Requests that Envoy has not answered to the end; streams count as long as they are open."""
    found = ACTIVE.search(_ask(port, "/stats?filter=^http.requests.downstream_rq_active$"))
    if found is None:
        raise ValueError("it does not count its requests")
    return int(found[1])


def _ask(port: int, path: str, posted: bytes | None = None) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", posted, timeout=10.0) as answer:
        text: str = answer.read().decode()
        return text
