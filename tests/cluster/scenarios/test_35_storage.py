"""Scenario 35: models come from the stores there are, once for all pods that share a cache, and are the same bytes on each of them. A fetch that is
killed leaves nothing behind."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

from tests import onnx_models
from tests.cluster.agent.stores import BUCKET, oci_registry, s3_client, s3_server, web_files
from tests.cluster.ground import models
from tests.cluster.ground.api import Object
from tests.cluster.ground.cluster import Cluster
from tests.cluster.ground.manifests import model, server
from tests.daemon import processes_below

CLAIM = {"spec": {
    "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
    "containers": [{"name": "wakeful", "volumeMounts": [{"name": "models", "mountPath": "/mnt/claims/models", "readOnly": True}]}],
}}
SHARED = {"claimName": "cache"}


def test_each_store_and_one_cache_for_two_pods(cluster: Cluster) -> None:
    with ExitStack() as stack:
        web, s3, registry = stack.enter_context(web_files()), stack.enter_context(s3_server()), stack.enter_context(oci_registry())
        web.files["/in-web/model.onnx"] = _content(cluster, "in-web")
        s3_client(s3).put_object(Bucket=BUCKET, Key="team/in-s3/model.onnx", Body=_content(cluster, "in-s3"))
        _content(cluster, "in-oci")
        registry.push("team/in-oci:1", "model.onnx", at=str(cluster.directory / "in-oci"))
        models.quick(cluster.directory / "claims/models/team", "in-claim")
        stored = [
            model("in-file", models.quick(cluster.directory, "in-file"), replicas=2),
            model("in-claim", "pvc://models/team/in-claim", replicas=2),
            model("in-web", f"{web.url}/in-web/model.onnx", replicas=2),
            model("in-s3", f"s3://{BUCKET}/team/in-s3", secretName="keys", replicas=2),
            model("in-oci", f"oci://{registry.address}/team/in-oci:1", replicas=2),
        ]
        names = [one["metadata"]["name"] for one in stored]
        cluster.controller(0, "--storage-secrets")
        cluster.apply(_keys(s3), server("triton", replicas=2, cache=SHARED, podTemplate=CLAIM), *stored)
        gateway = cluster.gateway()
        cluster.until(lambda: all(cluster.model(name).available == 2 for name in names), 90, "each is on both pods")
        with cluster.load(gateway.http, names, 50) as load:
            cluster.until(lambda: load.good >= 4 * len(names))
        load.nothing_lost()
        assert web.gets == ["/in-web/model.onnx"]
    kept = [path for path in (cluster.directory / "claims/cache").iterdir() if len(path.name) == 64]
    assert len(kept) == len(names)


def test_other_bytes_under_the_same_uri_are_refused(cluster: Cluster) -> None:
    with web_files() as web:
        web.files["/m.onnx"] = old = _content(cluster, "m")
        gateway = cluster.up(server("triton", replicas=2), model("m", f"{web.url}/m.onnx", replicas=1))
        m = cluster.model("m")
        web.files["/m.onnx"] = _content(cluster, "another")
        with cluster.load(gateway.http, ["m"], 50) as load:
            cluster.patch("Model", "m", {"spec": {"replicas": 2}})
            cluster.until(lambda: "has changed" in m.condition("Placed")["message"], 40, "the status says why there is no second copy")
            assert m.ready
            assert m.available == 1
            web.files["/m.onnx"] = old
            cluster.until(lambda: m.available == 2, 60, "the old bytes are good again")
        load.nothing_lost()


def test_a_fetch_that_is_killed_half_way(cluster: Cluster) -> None:
    with web_files() as web:
        web.piece_seconds = 0.5
        web.files["/large.onnx"] = onnx_models.weighty(cluster.directory / "large.onnx", 4).read_bytes()
        cluster.controller()
        cluster.apply(server("triton", cache=SHARED), model("large", f"{web.url}/large.onnx"))
        large, cache = cluster.model("large"), cluster.directory / "claims/cache"
        cluster.until(lambda: any(path.stat().st_size for path in cache.glob("work-*/artifact/files/*")), 60, "some of it has come")
        [process] = _fetching(cluster.pod("triton-0").pid())
        os.kill(process, signal.SIGKILL)
        cluster.until(lambda: "signal 9" in large.condition("Ready")["message"], 40, "the status says what became of it")
        assert not list(cache.glob("work-*"))
        web.piece_seconds = 0.0
        cluster.until(lambda: large.ready, 60, "it is fetched again, and served")
    assert not list(cache.glob("work-*"))


def _content(cluster: Cluster, name: str) -> bytes:
    models.quick(cluster.directory, name)
    return (cluster.directory / name / models.CONFIG_NAME).read_bytes()


def _keys(endpoint: str) -> Object:
    return {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "labels": {"wakeful.dev/storage": "true"}}, "stringData": {
            "AWS_ACCESS_KEY_ID": "key-id", "AWS_SECRET_ACCESS_KEY": "s3-secret-value", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": endpoint,
        },
    }


def _fetching(daemon: int) -> list[int]:
    """Processes that fetch, below a daemon."""
    return [pid for pid in processes_below(daemon) if b"fetch_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
