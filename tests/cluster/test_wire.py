"""Versions n and n - 1 of a message: what one does not know it passes over, and what the other did not say has a default."""

import msgspec

from wakeful.cluster.wire import Desired, FromAgent, HeldNow, Hello, Report, ToAgent, Wanted

encode = msgspec.msgpack.Encoder().encode


def test_fields_and_figures_of_a_later_version_are_passed_over() -> None:
    later = {
        "t": "report", "held": {"cat": ["ready", "r1", 1000, "", "a1", 5, "", 9, True, "mood: calm"]}, "use": {"cat": [9, 8, 0.5, 0.1, 3.0, 77]},
        "moods": [1],
    }
    read = msgspec.msgpack.decode(encode(later), type=FromAgent)
    assert isinstance(read, Report)
    assert read.held == {"cat": HeldNow("ready", "r1", 1000, "", "a1", 5, "", 9, True)}
    assert read.use["cat"].last_used == 3.0


def test_what_an_earlier_version_does_not_say_has_a_default() -> None:
    earlier = {
        "t": "hello", "protocol": 1, "pod": "p", "uid": "u", "server": "s", "http_port": 1, "grpc_port": None, "capabilities": [], "capacity": 1,
        "version": "1", "held": {"cat": ["ready", "r1"]},
    }
    read = msgspec.msgpack.decode(encode(earlier), type=FromAgent)
    assert isinstance(read, Hello)
    assert (read.epoch, read.limits, read.held["cat"].serves) == (0, {}, "")


def test_defaults_take_no_bytes() -> None:
    message = Desired(7, 2, 1, {"cat": Wanted("r1", "gs://cat")})
    assert msgspec.msgpack.decode(encode(message)) == {
        "t": "desired", "epoch": 7, "version": 2, "base": 1, "models": {"cat": {"revision": "r1", "storage_uri": "gs://cat"}},
    }
    assert msgspec.msgpack.decode(encode(message), type=ToAgent) == message
