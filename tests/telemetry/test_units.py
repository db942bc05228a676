import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.telemetry.units import show_bytes, show_seconds


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (61 * 1024**2, "61 MiB"), (9 * 1024**3, "9.0 GiB"), (-5 * 1024**2, "-5.0 MiB"),
        (1024**2 - 1, "1.0 MiB"), (int(9.96 * 1024), "10 KiB"), (2**70, "1048576 PiB"),
    ],
)  # fmt: skip
def test_show_bytes(size: int, text: str) -> None:
    assert show_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"), (0.00025, "250 us"), (0.0042, "4.2 ms"), (0.045, "45 ms"), (0.9996, "1.0 s"), (4.2, "4.2 s"), (42.4, "42 s"),
        (59.7, "1m 00s"), (242.0, "4m 02s"), (3599.7, "1h 00m"), (3780.0, "1h 03m"), (-242.0, "-4m 02s"), (-0.045, "-45 ms"),
    ],
)  # fmt: skip
def test_show_seconds(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text


@given(st.floats(-1e12, 1e12))
def test_anything_can_be_shown_shortly(value: float) -> None:
    assert len(show_seconds(value)) < 20
    assert len(show_bytes(value)) < 20
