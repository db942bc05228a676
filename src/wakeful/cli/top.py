"""`wakeful top`: the table of `ps`, live, with keys. Whatever ends it, the terminal is as it was before."""

import os
import select
import signal
import sys
import termios
import threading
import tty
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, NoReturn

from wakeful import clock
from wakeful.cli import explain, ps
from wakeful.cli.client import PREFIX, Client, Failure, client_of
from wakeful.cli.looks import printable
from wakeful.cli.output import Output, add_client_options, answered, looks_of
from wakeful.cli.parser import DONE, Parser
from wakeful.cli.top_screen import Minute, Order, Screen, draw, press
from wakeful.cli.wire import quoted
from wakeful.telemetry.units import show_seconds

FRAME_SECONDS = 1.0
ORDER_SECONDS = 300.0
_SEQUENCES = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down", b"\r": "enter", b"\n": "enter", b"\x7f": "backspace", b"\b": "backspace",
    b"\x1b": "escape", b"\x03": "ctrl-c",
}
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def add_arguments(parser: Parser) -> None:
    add_client_options(parser)


def run(arguments: Namespace) -> int:
    def work(client: Client, output: Output) -> int:
        if output.json or os.environ.get("TERM") == "dumb" or not (sys.stdout.isatty() and sys.stdin.isatty()):
            ps.show(client, output, Namespace(all=True, wide=False, sort="name"))
            return DONE
        state = client.get(f"{PREFIX}/state")  # whoever has no daemon, or no key, is told so on the usual screen
        arguments.timeout = ORDER_SECONDS
        with screen():
            Top(client, client_of(arguments), output, state).run()
        return DONE

    return answered(arguments, work)


@contextmanager
def screen() -> Iterator[None]:
    """The terminal's other screen, keys one by one. Back to how it was on any way out, signals among them."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    old = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        tty.setraw(descriptor, termios.TCSANOW)
        _write(ENTER)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
        _write(LEAVE)
        for number, handler in old.items():
            signal.signal(number, handler)


def _leave(number: int, _: Any) -> NoReturn:
    sys.exit(128 + number)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def keys_of(data: bytes) -> list[str]:
    """What was typed: characters, and names of the keys that have no character."""
    keys = []
    while data:
        sequence = next((one for one in sorted(_SEQUENCES, key=len, reverse=True) if data.startswith(one)), None)
        if sequence == b"\x1b" and data[1:2] in (b"[", b"O"):  # a key that means nothing here
            end = next((place for place in range(2, len(data)) if 0x40 <= data[place] <= 0x7E), len(data) - 1)
            data = data[end + 1 :]
        elif sequence is not None:
            keys.append(_SEQUENCES[sequence])
            data = data[len(sequence) :]
        else:
            size = next((size for size in range(1, 5) if _is_character(data[:size])), 1)
            keys += [char for char in data[:size].decode(errors="ignore") if char.isprintable()]
            data = data[size:]
    return keys


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


class Top:
    """The one who reads keys and draws; orders that take long run in threads of their own, and put what came of them into a queue."""

    def __init__(self, client: Client, patient: Client, output: Output, state: dict[str, Any]) -> None:
        self._client, self._patient, self._output = client, patient, output
        self._state = state
        self._screen = Screen()
        self._minute = Minute()
        self._note = ""
        self._outcomes: SimpleQueue[str] = SimpleQueue()
        self._now = clock.monotonic()
        """When the figures were read."""

    def run(self) -> None:
        self._minute.add(self._now, self._state["models"])
        due = clock.monotonic() + FRAME_SECONDS
        while self._screen.mode != "quit":
            self._show()
            if select.select([sys.stdin], [], [], max(due - clock.monotonic(), 0.0))[0]:
                data = os.read(sys.stdin.fileno(), 1024)
                if not data:  # the terminal is gone
                    return
                for key in keys_of(data):
                    self._screen, order = press(self._screen, key, self._state)
                    if order is not None:
                        self._obey(order)
            if clock.monotonic() >= due:
                due = clock.monotonic() + FRAME_SECONDS
                self._look()

    def _look(self) -> None:
        if self._screen.frozen:
            return
        try:
            self._state = self._client.get(f"{PREFIX}/state")
        except Failure as failure:
            self._note = f"{failure.message}; these are old figures"
            return
        if self._note.endswith("these are old figures"):
            self._note = ""
        self._now = clock.monotonic()
        self._minute.add(self._now, self._state["models"])

    def _show(self) -> None:
        while not self._outcomes.empty():
            self._note = self._outcomes.get()
        looks = looks_of(sys.stdout, "always" if self._output.looks.colour else "never")
        try:
            height = os.get_terminal_size(sys.stdout.fileno()).lines or 24
        except OSError:
            height = 24
        lines = draw(self._screen, self._state, self._minute, self._now, looks, height, printable(self._note))
        _write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines))

    def _obey(self, order: Order) -> None:
        if order.verb == "explain":
            try:
                answer = self._client.model(order.model, path="/explain", wake=1)
            except Failure as failure:
                self._note = failure.message
                return
            lines = tuple(explain.page(answer, looks_of(sys.stdout, "never")))
            self._screen = replace(self._screen, mode="details", details=lines)
            return
        self._note = f"{order.verb} {order.model} ..."
        threading.Thread(target=self._carry_out, args=(order,), daemon=True).start()

    def _carry_out(self, order: Order) -> None:
        started = clock.monotonic()
        try:
            self._patient.post(f"/v1/models/{quoted(order.model)}/{order.verb}")
            outcome = f"done in {show_seconds(clock.monotonic() - started)}"
        except Failure as failure:
            outcome = failure.message
        self._outcomes.put(f"{order.verb} {order.model}: {outcome}")
