"""A few models that nobody wrote, always the same ones. More of them: `python -m tests.generated --models 500 --seed 7`."""

from pathlib import Path

from tests.generated.__main__ import AT_ONCE, check


def test_an_answer_in_company_is_the_answer_alone_whatever_the_model_does(tmp_path: Path) -> None:
    """C01, C02, C04: or the model is not merged, and says why."""
    report = check(tmp_path, range(2 * AT_ONCE), seed=1)
    print(report.text())
    assert report.problems == []
    merged = sum(count for kind, count in report.models.items() if kind.startswith("merged"))
    assert merged > AT_ONCE / 2
    assert report.models.total() - merged > AT_ONCE / 2
    assert report.runs < report.requests
