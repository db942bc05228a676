"""Model libraries, each behind `base.Backend`. Imported in child processes alone."""

import os

# ONNX Runtime 1.29 and later reports to its maker by default, from a thread that starts with the import. A model server does not do that
# unasked, and a process with a second thread cannot be forked safely. The library reads this once, so it stands before every import of it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
