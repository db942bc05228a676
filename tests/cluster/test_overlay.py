"""One manifest over another."""

from typing import Any

import pytest

from wakeful.cluster.overlay import overlaid


@pytest.mark.parametrize(("base", "over", "expected"), [
    ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
    ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
    ({"a": [1]}, {"a": [2]}, {"a": [2]}),
    ({"containers": [{"name": "x", "image": "i"}]}, {"containers": [{"name": "y"}, {"name": "x", "tty": True}]},
     {"containers": [{"name": "x", "image": "i", "tty": True}, {"name": "y"}]}),
    ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "valueFrom": {"x": 1}}]}, {"env": [{"name": "A", "valueFrom": {"x": 1}}]}),
    ({"volumeMounts": [{"name": "v", "mountPath": "/a"}]}, {"volumeMounts": [{"name": "v", "mountPath": "/b"}]},
     {"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]}),
    ({"volumes": [{"name": "state", "emptyDir": {}}]}, {"volumes": [{"name": "state", "hostPath": {"path": "/x"}}]},
     {"volumes": [{"name": "state", "hostPath": {"path": "/x"}}]}),
])
def test_overlaid(base: dict[str, Any], over: dict[str, Any], expected: dict[str, Any]) -> None:
    assert overlaid(base, over) == expected
