"""The API groups whose Models and Servers count, by the dialect that people write in each."""

from collections.abc import Mapping
from typing import Literal

GROUP, SELDON_GROUP, VERSION = "wakeful.dev", "mlops.seldon.io", "v1alpha1"
Dialect = Literal["wakeful", "seldon"]
GROUPS: Mapping[Dialect, str] = {"wakeful": GROUP, "seldon": SELDON_GROUP}
