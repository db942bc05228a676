"""What pygrpc-native alone costs: a server that answers every call with a constant, from a thread that does nothing else.

usage: python -m bench.grpc_floor      listens on 127.0.0.1, any free port, and prints it
"""

import re
import sys

from bench.grpc_calls import METHOD
from bench.servers import Server

LISTENS = re.compile(rb"port (\d+)")


class GrpcFloor(Server):
    name = "empty handler"

    def __init__(self) -> None:
        super().__init__({})

    def start(self) -> None:
        self.launch([sys.executable, "-m", "bench.grpc_floor"])
        self.grpc_port = int(self.wait_said(LISTENS)[1])


def main() -> None:
    from pygrpc_native import NativeGrpcFront

    from wakeful.frontends.grpc.native import AT_ONCE, THREADS
    from wakeful.frontends.grpc.oip import encode_infer
    from wakeful.tensors import Tensor

    answer = encode_infer("tiny", "1", "", [Tensor("y", "FP32", (1, 3), bytes(12))])
    front = NativeGrpcFront("127.0.0.1:0", [(METHOD, False)], io_threads=THREADS)
    front.start()
    print("port", front.bound_port, flush=True)
    while (events := front.recv_batch(AT_ONCE)) is not None:
        for _, number, *_ in events:
            front.respond(number, answer)


if __name__ == "__main__":
    main()
