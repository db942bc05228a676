"""[cluster], from the file and from the variables of a pod."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wakeful.config.cluster import NAMES
from wakeful.config.effective import effective
from wakeful.config.load import Options, load
from wakeful.config.problems import ConfigError, Problem
from wakeful.config.schema import ClusterTable
from wakeful.config.settings import ClusterSettings, ModelSettings, Settings

IN_POD = {"WAKEFUL_CLUSTER_CONTROLLERS": "a:1, [::1]:2", "WAKEFUL_CLUSTER_SERVER": "triton", "POD_NAME": "triton-0", "POD_UID": "u1"}
KEYS: dict[str, tuple[str, str, object, Callable[[ClusterSettings], object]]] = {
    "controllers": ('["c:1", "d:2"]', "c:1,d:2", ("c:1", "d:2"), lambda cluster: cluster.controllers),
    "server": ('"s"', "s", "s", lambda cluster: cluster.server),
    "pod": ('"s-1"', "s-1", "s-1", lambda cluster: cluster.pod),
    "pod_uid": ('"u2"', "u2", "u2", lambda cluster: cluster.pod_uid),
    "namespace": ('"shop"', "shop", "shop", lambda cluster: cluster.namespace),
    "capabilities": ('["onnx", "gpu"]', "onnx,gpu", frozenset({"onnx", "gpu"}), lambda cluster: cluster.capabilities),
    "token_file": ('"/t"', "/t", Path("/t"), lambda cluster: cluster.token_file),
    "ca_file": ('"/ca"', "/ca", Path("/ca"), lambda cluster: cluster.ca_file),
    "socket": ('"/s"', "/s", Path("/s"), lambda cluster: cluster.socket),
    "state_dir": ('"/d"', "/d", Path("/d"), lambda cluster: cluster.state_dir),
    "artifacts_dir": ('"/a"', "/a", Path("/a"), lambda cluster: cluster.artifacts_dir),
    "artifacts_limit": ('"1GB"', "1GB", 10**9, lambda cluster: cluster.artifacts_limit),
    "claims_dir": ('"/v"', "/v", Path("/v"), lambda cluster: cluster.claims_dir),
    "max_downloads": ("2", "2", 2, lambda cluster: cluster.max_downloads),
    "stats_period_secs": ("2.5", "2.5", 2.5, lambda cluster: cluster.stats_period),
    "lag_threshold": ("7", "7", 7, lambda cluster: cluster.lag_threshold),
    "inactive_secs": ("60", "60", 60, lambda cluster: cluster.inactive),
    "max_loads": ("3", "3", 3, lambda cluster: cluster.max_loads),
    "grace_secs": ("30", "30", 30, lambda cluster: cluster.grace),
}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Settings]:
    def read(text: str, environ: dict[str, str] | None = None) -> Settings:
        (tmp_path / "c.toml").write_text(text, "utf-8")
        return load(Options(config=tmp_path / "c.toml"), {"HOME": "/nowhere"} | (environ or {}))

    return read


def cluster(settings: Settings) -> ClusterSettings:
    assert settings.cluster is not None
    return settings.cluster


def test_the_list_above_is_complete() -> None:
    assert set(KEYS) == set(ClusterTable.model_fields)


@pytest.mark.parametrize("key", KEYS)
def test_each_key_counts_and_its_variable_goes_before_it(key: str, read: Callable[..., Settings]) -> None:
    written, text, expected, reading = KEYS[key]
    assert reading(cluster(read("", IN_POD))) != expected
    own = {name: value for name, value in IN_POD.items() if name not in NAMES[key]}
    file = f"[cluster]\n{key} = {written}\n"
    assert reading(cluster(read(file, own))) == expected
    assert reading(cluster(read(file, IN_POD))) == reading(cluster(read("", IN_POD))) or not set(NAMES[key]) & set(IN_POD)
    for name in NAMES[key]:
        assert reading(cluster(read("", own | {name: text}))) == expected


def test_without_a_controller_there_is_no_cluster(read: Callable[..., Settings]) -> None:
    assert read("").cluster is None
    assert read('[cluster]\nserver = "triton"\n', {"POD_NAME": "triton-0"}).cluster is None


def test_what_is_shown_gives_the_same_settings(read: Callable[..., Settings]) -> None:
    def bare(settings: Settings) -> Settings:
        return replace(settings, files=(), warnings=(), defaults=ModelSettings("", Path()))

    text = "[cluster]\n" + "".join(f"{key} = {row[0]}\n" for key, row in KEYS.items())
    settings = bare(read(text))
    assert bare(read(effective(settings))) == settings


@pytest.mark.parametrize("name", [name for key in ("lag_threshold", "inactive_secs", "stats_period_secs") for name in NAMES[key]])
@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan"])
def test_garbage_in_a_variable_is_refused_with_its_name(name: str, value: str, read: Callable[..., Settings]) -> None:
    for environ in ({}, IN_POD):
        (wrong,) = faults(read, "", environ | {name: value})
        assert name in str(wrong.place)


def test_what_is_missing_and_what_is_wrong_is_said(read: Callable[..., Settings]) -> None:
    missing = faults(read, '[cluster]\ncontrollers = ["a:1"]\n')
    assert [problem.key for problem in missing] == ["cluster.server", "cluster.pod", "cluster.pod_uid"]
    assert "POD_UID" in str(missing[2].hint)
    for address in ("a", "a:", ":1", "a:0", "a:65536", "::1:9"):
        (wrong,) = faults(read, "", IN_POD | {"WAKEFUL_CLUSTER_CONTROLLERS": address})
        assert "HOST:PORT" in wrong.message
    (typo,) = faults(read, '[cluster]\ncontroler = ["a:1"]\n')
    assert typo.hint == "did you mean `controllers`?"
    assert faults(read, "cluster = 3\n")[0].key == "cluster"


def test_of_two_names_for_one_thing_the_first_counts_and_the_other_is_told(read: Callable[..., Settings]) -> None:
    ours, theirs = "WAKEFUL_MODEL_INFERENCE_LAG_THRESHOLD", "SELDON_MODEL_INFERENCE_LAG_THRESHOLD"
    settings = read("", IN_POD | {ours: "5", theirs: "9"})
    assert cluster(settings).lag_threshold == 5
    assert [theirs in problem.message for problem in settings.warnings] == [True]
    assert not read("", IN_POD | {ours: "5", theirs: "5"}).warnings


def test_a_service_link_is_no_setting(read: Callable[..., Settings]) -> None:
    assert cluster(read("", IN_POD | {"WAKEFUL_CLUSTER_SOCKET": "tcp://10.0.0.1:8080"})).socket == Path("/run/wakeful/agent.sock")


def faults(read: Callable[..., Settings], text: str, environ: dict[str, str] | None = None) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        read(text, environ)
    return list[Any](caught.value.problems)
