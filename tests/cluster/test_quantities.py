"""Quantities as Kubernetes writes them."""

import pytest

from wakeful.cluster.quantities import whole


@pytest.mark.parametrize(("quantity", "number"), [
    ("100Ki", 102400), ("2Gi", 2 << 30), ("1.5Gi", 3 << 29), ("100M", 100_000_000), ("1500m", 2), ("1e3", 1000), ("1E", 10**18), (7, 7), ("7", 7),
    ("0.1", 1), ("12E-1", 2), (".5Ki", 512),
])
def test_whole_numbers(quantity: str | int, number: int) -> None:
    assert whole(quantity) == number


@pytest.mark.parametrize("text", ["", "many", "1GB", "1 Gi", "0x10"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no Kubernetes quantity"):
        whole(text)
