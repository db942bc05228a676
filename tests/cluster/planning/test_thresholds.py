"""Where the figures of scaling come from."""

import pytest

from wakeful.cluster.planning.thresholds import KEYS, limits_of, read_thresholds
from wakeful.cluster.planning.world import ScaleLimits


def test_keys_are_read_by_field_and_unit() -> None:
    found, errors = read_thresholds({"lagThreshold": 10, "inactiveSeconds": 60, "maxStepPercent": 50, "busyPercent": 70}, "spec.autoscaling")
    assert found == {"lag_threshold": 10.0, "inactive": 60.0, "max_step": 0.5, "busy": 0.7000000000000001}
    assert errors == ()


def test_every_key_changes_a_limit() -> None:
    for name, key in KEYS.items():
        found, errors = read_thresholds({name: 77}, "spec.autoscaling")
        assert not errors
        assert limits_of(found, {}, {}) != ScaleLimits(), key


@pytest.mark.parametrize(
    ("section", "error"),
    [
        ({"lagTreshold": 3}, "spec.modelAutoscaling.lagTreshold: no such key; expected lagThreshold, inactiveSeconds"),
        ({"lagThreshold": 0}, "spec.modelAutoscaling.lagThreshold: expected a whole number of at least 1, not 0"),
        ({"busyPercent": 96}, "spec.modelAutoscaling.busyPercent: expected a whole number from 10 to 95, not 96"),
        ({"holdSeconds": "60"}, "spec.modelAutoscaling.holdSeconds: expected a whole number from 0 to 600, not '60'"),
        ({"inactiveSeconds": True}, "spec.modelAutoscaling.inactiveSeconds: expected a whole number of at least 1, not True"),
    ],
)
def test_what_cannot_be_meant_is_told_and_left_out(section: dict[str, object], error: str) -> None:
    found, errors = read_thresholds(section, "spec.modelAutoscaling")
    assert found == {}
    assert len(errors) == 1
    assert errors[0].startswith(error)


def test_model_over_server_over_agent_over_default() -> None:
    agent = {"lag_threshold": 7.0, "inactive": 70.0, "period": 20.0}
    assert limits_of({}, {}, {}) == ScaleLimits()
    assert limits_of({}, {}, agent) == ScaleLimits(lag_threshold=7.0, inactive=70.0, period=20.0)
    assert limits_of({}, {"lag_threshold": 5.0}, agent) == ScaleLimits(lag_threshold=5.0, inactive=70.0, period=20.0)
    assert limits_of({"lag_threshold": 3.0}, {"lag_threshold": 5.0}, agent).lag_threshold == 3.0


def test_an_agent_of_a_later_version_may_say_more() -> None:
    assert limits_of({}, {}, {"mood": 1.0}) == ScaleLimits()
