"""The API groups whose Models and Servers count, by the dialect that people write in each."""

from collections.abc import Mapping
from typing import Literal

GROUP, SELDON_GROUP, VERSION = "wakeful.dev", "mlops.seldon.io", "v1alpha1"
Dialect = Literal["wakeful", "seldon"]
METRICS_GROUP, METRICS_VERSION = "custom.metrics.k8s.io", "v1beta2"
GROUPS: Mapping[Dialect, str] = {"wakeful": GROUP, "seldon": SELDON_GROUP}
