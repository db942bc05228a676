"""docs/metrics.md, made from the definitions: `python -m wakeful.telemetry.reference > docs/metrics.md`."""

import sys

from wakeful.telemetry.metrics import DEFINITIONS

INTRODUCTION = """\
# Metrics

<!-- Made from src/wakeful/telemetry/metrics.py by `python -m wakeful.telemetry.reference`; a test holds it up to date. -->

`GET /metrics` shows them in Prometheus's text format. Times are seconds, sizes bytes. Counters belong to the model, not to its replicas: they
outlive sleep and never fall. Labels come from configured names only; where a model has numbered versions, `version` stands beside `model`.
`process_*` are the daemon's own process.

The average batch is `wakeful_batch_rows_sum / wakeful_batch_rows_count` in rows, and in requests
`snoozeml_requests_total{status="all"} / snoozeml_batches_dispatched_total`. The `snoozeml_*` names are those of SnoozeML, for its clients.

| metric | kind | labels | meaning |
|---|---|---|---|
"""


def reference() -> str:
    """The whole page."""
    rows = (
        f"| `{row.name}` | {row.kind} | {', '.join(f'`{label}`' for label in row.labels) or '-'} | {row.help} |\n" for row in DEFINITIONS.values()
    )
    return INTRODUCTION + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(reference())
