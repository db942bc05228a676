"""What docs/cluster.md says can be checked without a cluster here; its commands run in tests/cluster/scenarios."""

import json
import re
from typing import Any

import pytest

from tests.docs.guide import GUIDE, Block, blocks, manifests, missing
from wakeful.cluster.agent.stores import SECRET_KEYS
from wakeful.cluster.crds import crds
from wakeful.config.cluster import NAMES
from wakeful.config.schema import ClusterTable

PAGE = GUIDE.read_text("utf-8")
KINDS = {crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] for crd in crds()}


def unknown(value: Any, schema: dict[str, Any], path: str) -> list[str]:
    """Keys that the API server would refuse."""
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    known = schema.get("properties", {})
    if "additionalProperties" in schema:
        known = dict.fromkeys(value, schema["additionalProperties"])
    return [f"{path}.{key}" for key in value if key not in known] + [
        fault for key, inner in value.items() if key in known for fault in unknown(inner, known[key], f"{path}.{key}")
    ]


def test_every_block_is_run_or_for_people() -> None:
    found = blocks(PAGE)
    assert len(found) > 10
    assert all(block.commands for block in found)


def test_manifests_have_keys_that_exist() -> None:
    applied = list(manifests(PAGE))
    assert {one["kind"] for one in applied} == {"Server", "Model"}
    for one in applied:
        assert unknown(one["spec"], KINDS[str(one["kind"])], "spec") == []


def test_patches_have_keys_that_exist() -> None:
    patches = re.findall(r"kubectl patch (server|model) \S+ --type=merge -p '(.*)'", PAGE)
    assert len(patches) == PAGE.count("kubectl patch")
    for kind, patch in patches:
        assert unknown(json.loads(patch)["spec"], KINDS[kind.capitalize()], "spec") == []


def test_keys_of_secrets_are_those_that_are_taken() -> None:
    rows = dict(re.findall(r"^\| `(\w+)://[^|]*\|[^|]*\| ([^|]*)\|", PAGE, re.MULTILINE))
    told = {scheme: frozenset(re.findall(r"`([A-Z_]+)`", cell)) for scheme, cell in rows.items()}
    assert told == {**{scheme: keys for scheme, keys in SECRET_KEYS.items() if scheme != "http"}, "pvc": frozenset(), "file": frozenset()}


def test_claims_are_mounted_where_the_daemon_looks() -> None:
    assert f"`{ClusterTable.model_fields['claims_dir'].default}/CLAIM`" in PAGE


def test_variables_of_autoscaling_are_those_that_are_read() -> None:
    read = {name for names in NAMES.values() for name in names if "THRESHOLD" in name or "STATS_PERIOD" in name}
    told = set(re.findall(r"`((?:SELDON|WAKEFUL)_[A-Z_]+)`", PAGE))
    assert told <= read
    assert {name for name in read if name.startswith("SELDON_")} <= told


# ── the marking ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_output_belongs_to_the_commands_right_before_it() -> None:
    page = "```sh\nls\n```\n\n```text\na\n```\ntext\n```sh\ncat\n```\n```\n$ helm\n```\n"
    assert blocks(page) == [Block(2, "ls\n", "a\n"), Block(10, "cat\n", "")]


@pytest.mark.parametrize("page", ["```text\na\n```\n", "```sh\nls\n```\nwords\n```text\na\n```\n", "```bash\nls\n```\n", "```\nls\n```\n"])
def test_blocks_that_nobody_would_run_are_found(page: str) -> None:
    with pytest.raises(ValueError, match=r"line \d: expected sh"):
        blocks(page)


@pytest.mark.parametrize(("expected", "printed"), [
    ("NAME READY\nquick True …\n", "NAME    READY\nquick   True    3m\n"),
    ("…\nb\n", "a\nb\n"),
    ("a\nc\n", "a\nb\nc\n"),
    ("…[2.0]…", '{"data":[2.0],"x":1}'),
    ("triton … 1 5 …", "triton  Server/triton  cpu: <unknown>/50%  1  5  1  2s"),
    ("tfsimple False … 1 0 …requirements…", "tfsimple   False   Progressing   1   0      1 replica of 1: triton: requirements on 1"),
    ("", "anything"),
])
def test_lines_match_loosely(expected: str, printed: str) -> None:
    assert missing(expected, printed) is None


@pytest.mark.parametrize(("expected", "printed", "line"), [
    ("a\nb", "b\na", "b"), ("quick True", "quick False", "quick True"), ("a", "ab", "a"), ("a…", "ba", "a…"), ("a", "", "a"), ("a b", "ab", "a b"),
])
def test_what_is_not_printed_is_found(expected: str, printed: str, line: str) -> None:
    assert missing(expected, printed) == line
