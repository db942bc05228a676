"""`wakeful top`: keys and drawing as pure functions, and the whole of it on terminals."""

import os
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.cli import states
from tests.cli.golden_files import assert_golden
from tests.cli.test_rendering import at_greenwich  # noqa: F401 - a fixture
from tests.cli.test_serve import SECONDS, Terminal
from tests.daemon import Daemon, running, wait_until
from wakeful.cli.looks import Looks
from wakeful.cli.top import ENTER, LEAVE, keys_of
from wakeful.cli.top_screen import Minute, Order, Screen, bar, draw, press

LOOKS = Looks(unicode=True, width=100)


def after(screen: Screen, *keys: str) -> tuple[Screen, Order | None]:
    order = None
    for key in keys:
        screen, order = press(screen, key, states.EXAMPLE)
    return screen, order


def test_the_mark_stays_with_the_model() -> None:
    screen, _ = after(Screen(), "down", "j")
    assert screen.selected == "resnet50"
    screen, _ = after(screen, "s", "s")
    assert (screen.sort, screen.selected) == ("queue", "resnet50")
    assert after(Screen(), "up")[0].selected == "fraud"
    assert after(Screen(), *["down"] * 50)[0].selected == "titles-tokenizer"


def test_orders_need_a_yes() -> None:
    screen, order = after(Screen(), "down", "l")
    assert (screen.mode, screen.pending, order) == ("sure", Order("load", "legacy"), None)
    assert after(screen, "y") == (Screen(selected="legacy"), Order("load", "legacy"))
    assert after(screen, "n") == (Screen(selected="legacy"), None)
    assert after(screen, "l") == (Screen(selected="legacy"), None)
    assert after(Screen(), "p", "y")[1] == Order("unpin", "fraud")
    assert after(Screen(selected="titles"), "p", "y")[1] == Order("pin", "titles")
    assert after(Screen(selected="titles"), "u", "y")[1] == Order("unload", "titles")
    assert after(Screen(), "enter")[1] == Order("explain", "fraud")


def test_finding() -> None:
    screen, _ = after(Screen(), "/", "t", "i", "x", "backspace")
    assert (screen.mode, screen.find) == ("find", "ti")
    screen, _ = after(screen, "enter", "down")
    assert (screen.mode, screen.selected) == ("list", "titles-tokenizer")
    assert after(screen, "escape")[0].find == ""
    assert after(Screen(), "/", "q", "escape")[0] == Screen()
    assert after(Screen(), "/", "z", "z", "enter", "l")[0].mode == "list"  # there is nothing to load


def test_other_keys() -> None:
    assert after(Screen(), "?")[0].mode == "help"
    assert after(Screen(), "?", "q")[0].mode == "list"
    assert after(Screen(), " ")[0].frozen
    assert after(Screen(), " ", " ")[0] == Screen()
    assert after(Screen(), "q")[0].mode == "quit"
    for keys in (["/"], ["l"], ["?"], []):
        assert after(Screen(), *keys, "ctrl-c")[0].mode == "quit"
    assert after(Screen(), "x") == (Screen(), None)


def test_what_is_typed() -> None:
    assert keys_of(b"\x1b[A\x1bOBq\r\x7f\x03") == ["up", "down", "q", "enter", "backspace", "ctrl-c"]
    assert keys_of("ü→".encode()) == ["ü", "→"]
    assert keys_of(b"\x1b[3~x\x1b") == ["x", "escape"]
    assert keys_of(b"\xff\x00a") == ["a"]


@pytest.mark.parametrize(
    ("name", "screen", "looks", "height"),
    [
        ("top.txt", Screen(selected="resnet50"), LOOKS, 14),
        ("top_ascii.txt", Screen(find="e", sort="queue", frozen=True), LOOKS._replace(unicode=False, width=80), 12),
        ("top_small.txt", Screen(selected="titles", mode="sure", pending=Order("load", "titles")), LOOKS._replace(width=60), 7),
        ("top_help.txt", Screen(mode="help"), LOOKS, 10),
        ("top_colour.txt", Screen(selected="fraud"), LOOKS._replace(colour=True), 12),
    ],
)
def test_drawing(name: str, screen: Screen, looks: Looks, height: int) -> None:
    minute = Minute()
    for second in range(60):
        done = second * second
        minute.add(float(second), [states.BUSY | {"done": done}, *states.EXAMPLE["models"][1:]])
    lines = draw(screen, states.EXAMPLE, minute, 59.0, looks, height)
    assert len(lines) == height
    if not looks.colour:
        assert all(len(line) <= (looks.width or 0) for line in lines)
    assert_golden(name, "\n".join(line.rstrip() for line in lines) + "\n")


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("mode", ["list", "help", "find"])
def test_no_terminal_is_too_small(mode: Literal["list", "help", "find"], unicode: bool) -> None:
    for width in range(1, 40):
        for height in (1, 2, 3, 6):
            lines = draw(Screen(mode=mode), states.EXAMPLE, Minute(), 0.0, LOOKS._replace(unicode=unicode, width=width), height)
            assert len(lines) == height
            assert max(map(len, lines)) <= width


def test_a_daemon_that_starts_anew_draws_no_hole() -> None:
    minute = Minute()
    for second, done in enumerate((1000, 1010, 0, 5)):
        minute.add(float(second), [states.BUSY | {"done": done}])
    assert minute.bars(states.BUSY["key"], 3.0, Looks()) == "_______#"
    minute.add(4.0, [])
    assert minute.samples == {}


def test_bars_of_memory() -> None:
    assert bar(0, 0, Looks()) == "." * 10
    assert bar(8, 16, Looks(unicode=True)) == "█████     "
    assert bar(99, 16, Looks()) == "#" * 10


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("top"), "--demo", "--no-grpc") as daemon:
        yield daemon


def test_off_a_terminal_it_is_one_list(daemon: Daemon) -> None:
    command = [sys.executable, "-m", "wakeful", "top", "--url", daemon.url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.stdout.startswith("MODEL")
    assert "digits" in done.stdout
    assert "\x1b" not in done.stdout


def by_lines(terminal: Terminal) -> bool:
    """Whether it shows what is typed, and gives it on line by line."""
    usual = termios.ICANON | termios.ECHO | termios.ISIG
    return bool(termios.tcgetattr(terminal.fd)[3] & usual == usual)


@pytest.mark.parametrize("end", ["q", "\x03", signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_as_before(daemon: Daemon, end: str | int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal("top", "--url", daemon.url)
    try:
        text = terminal.read_until(lambda text: "space freeze" in text)
        assert text.startswith(ENTER)
        assert not by_lines(terminal)
        if isinstance(end, str):
            os.write(terminal.fd, end.encode())
        else:
            terminal.process.send_signal(end)
        assert terminal.read_until(lambda text: text.endswith(LEAVE)).endswith(LEAVE)
        assert by_lines(terminal)
        assert terminal.process.wait(SECONDS) == (0 if isinstance(end, str) else 128 + end)
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.fd)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")
def test_in_tmux(daemon: Daemon, tmp_path: Path) -> None:
    """What a person sees: load a model by keys, and leave."""
    tmux = ["tmux", "-u", "-S", str(tmp_path / "s"), "-f", "/dev/null"]

    def seen() -> str:
        return subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True, timeout=60).stdout

    def keys(*names: str) -> None:
        subprocess.run([*tmux, "send-keys", *names], check=True, timeout=60)

    environment = os.environ | {"LC_ALL": "C.UTF-8", "PS1": "$ "}
    shell = f"{sys.executable} -m wakeful top --url {daemon.url}; echo it left with $?; exec cat"
    subprocess.run([*tmux, "new-session", "-d", "-x", "100", "-y", "20", "sh", "-c", shell], check=True, timeout=60, env=environment)
    try:
        wait_until(lambda: "▶ demo-model" in seen(), "the list is there")
        keys("Down")
        wait_until(lambda: "▶ digits" in seen(), "the mark has moved")
        keys("l")
        wait_until(lambda: "load digits? y or n" in seen(), "it asks")
        keys("y")
        wait_until(lambda: "load digits: done in" in seen(), "it has done it")
        keys("?")
        wait_until(lambda: "any key goes back" in seen(), "help is there")
        keys("x", "q")
        wait_until(lambda: "it left with 0" in seen(), "it has left")
        assert "digits" not in seen()
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, timeout=60)
