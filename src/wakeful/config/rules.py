"""Values that are right one by one and wrong together. Pure: a table in, the broken rules out."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from wakeful.config.schema import TuningTable


@dataclass(frozen=True, slots=True)
class Rule:
    keys: tuple[str, str]
    broken: Callable[[TuningTable], bool]
    message: str
    """With the values of the table filled in by name."""
    severity: Literal["error", "warning"] = "error"


RULES = (
    Rule(
        ("min_replicas", "max_replicas"),
        lambda table: 0 < table.max_replicas < table.min_replicas,
        "min_replicas {min_replicas} is above max_replicas {max_replicas}",
    ),
    Rule(
        ("replicas", "min_replicas"),
        lambda table: table.replicas is not None and table.min_replicas not in (0, table.replicas),
        "replicas = {replicas} fixes the count, but min_replicas is {min_replicas}",
    ),
    Rule(
        ("replicas", "max_replicas"),
        lambda table: table.replicas is not None and table.max_replicas not in (0, table.replicas),
        "replicas = {replicas} fixes the count, but max_replicas is {max_replicas}",
    ),
    Rule(
        ("max_batch_size", "queue_limit"),
        lambda table: table.max_batch_size > table.queue_limit,
        "max_batch_size {max_batch_size} is above queue_limit {queue_limit}: requests of one row can never fill a batch",
        "warning",
    ),
    Rule(
        ("max_batch_delay_ms", "request_timeout_ms"),
        lambda table: table.max_batch_delay_ms >= table.request_timeout_ms,
        "max_batch_delay_ms {max_batch_delay_ms:g} is not below request_timeout_ms {request_timeout_ms:g}: a lone request may expire waiting",
        "warning",
    ),
    Rule(
        ("target_p99_ms", "batch_policy"),
        lambda table: table.target_p99_ms is not None and table.batch_policy == "timer",
        'target_p99_ms has no effect with batch_policy = "timer"',
        "warning",
    ),
    Rule(
        ("pad", "batching"),
        lambda table: table.pad is not None and table.batching == "off",
        'pad has no effect with batching = "off"',
        "warning",
    ),
)


def broken_rules(table: TuningTable, own: Collection[str]) -> list[tuple[Rule, str, str]]:
    """Each broken rule in which one of `own` (the keys written in this very table) takes part, with its message and the key to point at."""
    return [
        (rule, rule.message.format_map(dict(table)), [key for key in rule.keys if key in own][-1])
        for rule in RULES
        if any(key in own for key in rule.keys) and rule.broken(table)
    ]
