"""Real child processes, and real servers on loopback that speak the stores' protocols."""

import asyncio
import hashlib
import io
import json
import os
import signal
import sys
import tarfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.agent.stores import BUCKET, WebFiles, oci_registry, s3_client, s3_server, web_files
from tests.faults.disks import mounted
from wakeful.cluster.agent.cache import Cache, Use
from wakeful.cluster.agent.fetch import LARGEST_ORDER, Fetcher, FetchFailed, FetchLimits

DEADLINE = 60.0


class Pod:
    """A cache and who fetches into it, for plain tests."""

    def __init__(self, directory: Path, limit: int | None = None, **limits: Any) -> None:
        self.cache = Cache(directory / "cache", limit)
        self.cache.sweep()
        self.claims = directory / "claims"
        self.limits = FetchLimits(**limits)

    def do(self, work: Callable[[Fetcher], Coroutine[Any, Any, Any]]) -> Any:
        async def within() -> Any:
            async with asyncio.timeout(DEADLINE):
                return await work(Fetcher(self.cache, self.limits, self.claims))

        return asyncio.run(within())

    def fetch(self, uri: str, *arguments: Any, **options: Any) -> Use:
        use: Use = self.do(lambda fetcher: fetcher.fetch(uri, *arguments, **options))
        return use

    def refused(self, uri: str, *arguments: Any, **options: Any) -> str:
        with pytest.raises(FetchFailed) as caught:
            self.fetch(uri, *arguments, **options)
        assert str(caught.value).startswith(f"{uri}: ")
        assert left_behind(self.cache) == []
        return caught.value.reason


def left_behind(cache: Cache) -> list[str]:
    return [path.name for path in cache.directory.iterdir() if path.name.startswith("work-")]


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model as Triton's repositories have it."""
    return triton_model(tmp_path / "source")


def triton_model(directory: Path) -> Path:
    (directory / "1").mkdir(parents=True)
    (directory / "1" / "model.onnx").write_bytes(b"weights" * 100)
    (directory / "config.pbtxt").write_text('name: "simple"')
    return directory


def files_of(use: Use) -> list[str]:
    return sorted(path.relative_to(use.path).as_posix() for path in use.path.rglob("*") if path.is_file())


TRITON = ["1/model.onnx", "config.pbtxt"]


# ── in the pod ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_directory_comes_as_it_is(pod: Pod, source: Path) -> None:
    use = pod.fetch(f"file://{source}")
    assert files_of(use) == TRITON
    assert (use.path / "1" / "model.onnx").read_bytes() == b"weights" * 100
    assert use.nbytes == 714
    assert left_behind(pod.cache) == []


def test_a_single_file_keeps_its_name(pod: Pod, source: Path) -> None:
    assert pod.fetch(f"file://{source}/1/model.onnx").path.name == "model.onnx"


def test_a_model_in_use_does_not_see_what_becomes_of_its_source(pod: Pod, source: Path) -> None:
    use = pod.fetch(f"file://{source}")
    (source / "1" / "model.onnx").write_bytes(b"other")
    assert (use.path / "1" / "model.onnx").read_bytes() == b"weights" * 100


def test_a_claim_is_where_the_server_mounts_it(pod: Pod) -> None:
    triton_model(pod.claims / "shared" / "team" / "simple")
    assert files_of(pod.fetch("pvc://shared/team/simple")) == TRITON
    assert files_of(pod.fetch("pvc://shared")) == [f"team/simple/{name}" for name in TRITON]


def test_a_claim_that_is_not_mounted_is_told(pod: Pod) -> None:
    assert "the claim 'absent' is not mounted at" in pod.refused("pvc://absent/simple")
    assert "podTemplate" in pod.refused("pvc://../simple")


@pytest.mark.parametrize("path", ["shared/../../source", "shared/way/source", "shared/one"])
def test_nothing_leads_out_of_a_claim(pod: Pod, source: Path, path: str) -> None:
    (pod.claims / "shared").mkdir(parents=True)
    (pod.claims / "shared" / "way").symlink_to(source.parent)
    (pod.claims / "shared" / "one").symlink_to(source / "config.pbtxt")
    assert pod.refused(f"pvc://{path}") in ("the URI has .. in its path", f"{path.split('/')[1]} in the path is a link, which is not followed")


def test_links_and_pipes_in_a_model_are_refused(pod: Pod, source: Path) -> None:
    (source / "1" / "more").symlink_to("/etc/passwd")
    assert pod.refused(f"file://{source}") == "1/more is a link: a model consists of files and directories"
    (source / "1" / "more").unlink()
    os.mkfifo(source / "1" / "more")
    assert pod.refused(f"file://{source}") == "1/more is no file: a model consists of files and directories"
    assert "is neither a file nor a directory" in pod.refused(f"file://{source}/1/more")


def test_what_is_not_there_is_told(pod: Pod, source: Path) -> None:
    assert pod.refused(f"file://{source}/2") == "there is nothing at this URI, or these credentials may not see it"
    (source / "empty").mkdir()
    assert pod.refused(f"file://{source}/empty") == "there is nothing at this URI"
    assert pod.refused("file://host/path") == "file:// has three slashes and no host: file:///host/path"


def test_a_library_that_is_not_installed_is_named(pod: Pod) -> None:
    for scheme, library, extra in (("gs", "gcsfs", "wakeful[gcs]"), ("az", "adlfs", "wakeful[azure]")):
        try:
            __import__(library)
        except ImportError:
            assert f"needs the library {library}" in (reason := pod.refused(f"{scheme}://bucket/model"))
            assert f"pip install '{extra}'" in reason
    assert "begins with file://, pvc://, " in pod.refused("ftp://host/model")


# ── over the network ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_over_http_one_file(pod: Pod) -> None:
    with web_files(**{"fraud.onnx": b"y" * 300_000}) as web:
        use = pod.fetch(f"{web.url}/fraud.onnx")
        assert use.path.name == "fraud.onnx"
        assert use.path.read_bytes() == b"y" * 300_000
        assert pod.fetch(f"{web.url}/fraud.onnx").revision == use.revision
        assert web.gets == ["/fraud.onnx"]  # its ETag is the same
        web.files["/fraud.onnx"] = b"z" * 300_000
        assert pod.fetch(f"{web.url}/fraud.onnx").revision != use.revision
        assert pod.refused(f"{web.url}/absent.onnx").startswith("there is nothing at this URI")
        assert "names no file" in pod.refused(f"{web.url}/")


def test_a_server_without_etags_is_read_each_time(pod: Pod) -> None:
    with web_files(**{"fraud.onnx": b"y"}) as web:
        web.etags = False
        assert pod.fetch(f"{web.url}/fraud.onnx").revision == pod.fetch(f"{web.url}/fraud.onnx").revision
        assert len(web.gets) == 2


def test_a_host_that_cannot_be_reached_is_told(pod: Pod) -> None:
    assert "Cannot connect to host 127.0.0.1:9" in pod.refused("http://127.0.0.1:9/fraud.onnx")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as url:
        yield url


def s3_secret(url: str) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": "key-id", "AWS_SECRET_ACCESS_KEY": "s3-secret-value", "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1"}


def test_of_s3_all_below_a_prefix(pod: Pod, s3: str) -> None:
    client = s3_client(s3)
    objects = {"tri/simple/": b"", "tri/simple/1/model.onnx": b"weights", "tri/simple/config.pbtxt": b"name", "tri/simple2/x": b"other"}
    for key, body in objects.items():
        client.put_object(Bucket=BUCKET, Key=key, Body=body)
    assert files_of(pod.fetch(f"s3://{BUCKET}/tri/simple", secret=s3_secret(s3))) == TRITON
    assert files_of(pod.fetch(f"s3://{BUCKET}/tri/simple/", secret=s3_secret(s3))) == TRITON
    assert pod.fetch(f"s3://{BUCKET}/tri/simple/1/model.onnx", secret=s3_secret(s3)).path.name == "model.onnx"
    assert pod.refused(f"s3://{BUCKET}/absent", secret=s3_secret(s3)).startswith("there is nothing at this URI")


def test_of_s3_by_the_pods_own_settings(pod: Pod, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Secret and no identity: a public bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3_client(s3).put_object(Bucket=BUCKET, Key="public.onnx", Body=b"x", ACL="public-read")
    assert pod.fetch(f"s3://{BUCKET}/public.onnx").nbytes == 1


@pytest.mark.parametrize("key", ["evil/../../etc/passwd", "evil/a//b", "evil/a\\..\\b", "evil/./b"])
def test_names_that_lead_out_are_refused(pod: Pod, s3: str, key: str) -> None:
    client = s3_client(s3)
    for old in client.list_objects_v2(Bucket=BUCKET, Prefix="evil").get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=old["Key"])
    client.put_object(Bucket=BUCKET, Key=key, Body=b"x")
    assert "a name that may lead out of the model's directory" in pod.refused(f"s3://{BUCKET}/evil", secret=s3_secret(s3))


def test_a_name_that_is_a_file_and_a_directory_is_refused(pod: Pod, s3: str) -> None:
    for key in ("both/a", "both/a/b"):
        s3_client(s3).put_object(Bucket=BUCKET, Key=key, Body=b"x")
    assert pod.refused(f"s3://{BUCKET}/both", secret=s3_secret(s3)) == "a is there twice, as two files or as a file and a directory"


def test_of_a_registry_files_and_directories(pod: Pod, source: Path) -> None:
    with oci_registry() as registry:
        registry.push("team/simple:v1", source.name, at=str(source.parent))
        use = pod.fetch(f"oci://{registry.address}/team/simple:v1")
        assert files_of(use) == TRITON
        registry.push("team/files:v1", "config.pbtxt", at=str(source))
        assert pod.fetch(f"oci://{registry.address}/team/files:v1").path.name == "config.pbtxt"
        assert "Not Found" in pod.refused(f"oci://{registry.address}/team/simple:v2")
        assert "only its first part" in pod.refused("oci://registry")


def test_a_blob_with_another_digest_is_refused(pod: Pod, source: Path) -> None:
    with oci_registry() as registry:
        registry.push("team/files:v1", "config.pbtxt", at=str(source))
        digest = next(digest for digest, blob in registry.blobs.items() if blob.startswith(b"name"))
        registry.blobs[digest] = b"name: hacked!!"
        assert "the registry's bytes have the digest" in pod.refused(f"oci://{registry.address}/team/files:v1")


@pytest.mark.parametrize(("name", "kind", "why"), [
    ("simple/link", tarfile.SYMTYPE, "is a link or a device"),
    ("../out", tarfile.REGTYPE, "may lead out"),
    ("/etc/out", tarfile.REGTYPE, "may lead out"),
])
def test_a_packed_directory_stays_in_its_place(pod: Pod, name: str, kind: bytes, why: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with oci_registry() as registry:
        digest = f"sha256:{hashlib.sha256(packed.getvalue()).hexdigest()}"
        registry.blobs[digest] = packed.getvalue()
        layer = {"digest": digest, "size": len(packed.getvalue()), "annotations": {
            "org.opencontainers.image.title": "simple", "io.deis.oras.content.unpack": "true",
        }}
        registry.manifests["/v2/team/bad/manifests/v1"] = json.dumps({"schemaVersion": 2, "layers": [layer]}).encode()
        assert why in pod.refused(f"oci://{registry.address}/team/bad:v1")


# ── revisions ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_other_bytes_under_the_same_uri_are_refused_while_the_revision_is_fixed(pod: Pod, tmp_path: Path) -> None:
    other_pod = Pod(tmp_path / "other")
    with web_files(**{"fraud.onnx": b"first"}) as web:
        revision = pod.fetch(f"{web.url}/fraud.onnx").revision
        web.files["/fraud.onnx"] = b"second"
        reason = other_pod.refused(f"{web.url}/fraud.onnx", revision)
        assert reason.startswith(f"what is there has changed: this model's other replicas have the artifact {revision}, and it is sha256:")
        gets = len(web.gets)
        assert other_pod.refused(f"{web.url}/fraud.onnx", revision) == reason
        assert len(web.gets) == gets  # what is there is known by its ETag
        web.files["/fraud.onnx"] = b"first"
        assert other_pod.fetch(f"{web.url}/fraud.onnx", revision).revision == revision


def test_what_is_in_the_cache_needs_no_store(pod: Pod) -> None:
    with web_files(**{"fraud.onnx": b"first"}) as web:
        uri, revision = f"{web.url}/fraud.onnx", pod.fetch(f"{web.url}/fraud.onnx").revision
    assert pod.fetch(uri, revision).revision == revision


def test_a_revision_that_is_none_is_refused(pod: Pod) -> None:
    assert "an artifact's revision is sha256:" in pod.refused("file:///somewhere", "../..")


# ── several at once ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def slow_web() -> Iterator[WebFiles]:
    """Two seconds and more for a file."""
    with web_files(**{f"{name}.onnx": name.encode() * 2_000_000 for name in "abcd"}) as web:
        web.piece_seconds = 0.07
        yield web


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "wakeful.cluster.agent.fetch_main" in child.cmdline()]


async def under_way(web: WebFiles, count: int = 1) -> None:
    await until(lambda: len(web.gets) >= count)


async def until(seen: Callable[[], bool]) -> None:
    """What servers and processes do has no event to wait for; `Pod.do` has the deadline."""
    while not seen():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.01)


def test_all_who_ask_at_once_share_one_download(pod: Pod) -> None:
    with web_files(**{"fraud.onnx": b"x" * 1000}) as web:
        uses = pod.do(lambda fetcher: _all(*(fetcher.fetch(f"{web.url}/fraud.onnx") for _ in range(5))))
        assert web.gets == ["/fraud.onnx"]
    assert len({use.revision for use in uses}) == 1


async def _all(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    return list(await asyncio.gather(*work))


def test_two_pods_with_one_cache_share_one_download(pod: Pod) -> None:
    other = Fetcher(Cache(pod.cache.directory), pod.limits, pod.claims)
    with web_files(**{"fraud.onnx": b"x" * 1000}) as web:
        uri = f"{web.url}/fraud.onnx"
        uses = pod.do(lambda fetcher: _all(fetcher.fetch(uri), other.fetch(uri)))
        assert web.gets == ["/fraud.onnx"]
    assert uses[0].path == uses[1].path


def test_a_few_are_fetched_at_once_and_the_others_wait(tmp_path: Path, slow_web: WebFiles) -> None:
    async def work(fetcher: Fetcher) -> int:
        waiting = [asyncio.create_task(fetcher.fetch(f"{slow_web.url}/{name}.onnx")) for name in "abc"]
        await under_way(slow_web, 2)
        seen = len(children())
        slow_web.piece_seconds = 0.0
        await asyncio.gather(*waiting)
        return seen

    assert Pod(tmp_path, downloads=2).do(work) == 2
    assert len(slow_web.gets) == 3


def test_progress_is_seen(pod: Pod, slow_web: WebFiles) -> None:
    async def work(fetcher: Fetcher) -> None:
        uri = f"{slow_web.url}/a.onnx"
        fetching = asyncio.create_task(fetcher.fetch(uri))
        await until(lambda: uri in fetcher.running and fetcher.running[uri].fetched > 0)
        assert 0 < fetcher.running[uri].fetched <= fetcher.running[uri].total == 2_000_000
        slow_web.piece_seconds = 0.0
        await fetching
        assert not fetcher.running

    pod.do(work)


# ── half-way ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_leaves_ends_the_process_and_nothing_is_left(pod: Pod, slow_web: WebFiles) -> None:
    async def work(fetcher: Fetcher) -> None:
        first, second = (asyncio.create_task(fetcher.fetch(f"{slow_web.url}/a.onnx")) for _ in range(2))
        await under_way(slow_web)
        [child] = children()
        first.cancel()
        await asyncio.wait([first])
        assert child.is_running()  # the other one still waits for it
        second.cancel()
        await asyncio.wait([second])
        assert not child.is_running()

    pod.do(work)
    assert left_behind(pod.cache) == []


def test_closing_ends_all(pod: Pod, slow_web: WebFiles) -> None:
    async def work(fetcher: Fetcher) -> None:
        fetching = asyncio.create_task(fetcher.fetch(f"{slow_web.url}/a.onnx"))
        await under_way(slow_web)
        await fetcher.close()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        assert not children()

    pod.do(work)


def test_a_process_that_is_killed_leaves_nothing_and_the_next_one_brings_it(pod: Pod, slow_web: WebFiles) -> None:
    async def work(fetcher: Fetcher) -> Use:
        fetching = asyncio.create_task(fetcher.fetch(f"{slow_web.url}/a.onnx"))
        await under_way(slow_web)
        children()[0].send_signal(signal.SIGKILL)
        with pytest.raises(FetchFailed, match="the process that fetches it was ended by signal 9"):
            await fetching
        assert left_behind(pod.cache) == []
        slow_web.piece_seconds = 0.0
        return await fetcher.fetch(f"{slow_web.url}/a.onnx")

    assert pod.do(work).path.stat().st_size == 2_000_000


def test_no_process_outlives_the_daemon(pod: Pod, slow_web: WebFiles) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from wakeful.cluster.agent.cache import Cache
from wakeful.cluster.agent.fetch import Fetcher, FetchLimits
asyncio.run(Fetcher(Cache(Path(sys.argv[1])), FetchLimits(), Path('/nowhere')).fetch(sys.argv[2]))
"""
    daemon = psutil.Popen([sys.executable, "-c", code, str(pod.cache.directory), f"{slow_web.url}/a.onnx"])
    asyncio.run(asyncio.wait_for(under_way(slow_web), DEADLINE))
    [child] = daemon.children()
    daemon.kill()
    daemon.wait(10)
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    pod.cache.sweep()
    assert left_behind(pod.cache) == []


def test_what_takes_too_long_is_ended(tmp_path: Path, slow_web: WebFiles) -> None:
    pod = Pod(tmp_path, seconds=1.5)
    assert pod.refused(f"{slow_web.url}/a.onnx").startswith("it took longer than 1.5 s")
    assert not children()


def test_what_does_not_fit_is_refused_before_it_is_fetched(tmp_path: Path) -> None:
    with web_files(**{"large.onnx": b"x" * 5000}) as web:
        assert "do not fit into the cache" in Pod(tmp_path, limit=4000).refused(f"{web.url}/large.onnx")
        assert web.gets == []


@contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            stack.enter_context(mounted(path, "size=1m"))
        except PermissionError as error:
            pytest.skip(str(error))
        yield path


def test_a_disk_that_is_too_small_is_told_before_and_one_that_fills_up_meanwhile(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, web_files(**{"large.onnx": b"x" * 2_000_000}) as web:
        pod = Pod(disk)
        assert "the disk has" in pod.refused(f"{web.url}/large.onnx")
        assert web.gets == []
        web.lengths = False
        assert "the disk of the cache" in (reason := pod.refused(f"{web.url}/large.onnx"))
        assert "became full: give it a larger volume" in reason


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_secret_reaches_its_own_process_alone(pod: Pod, slow_web: WebFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKEFUL_ADMIN_KEY", "daemons-own-key")
    monkeypatch.setenv("AWS_ROLE_ARN", "pods-own-role")
    word = "Bearer models-own-secret"

    async def work(fetcher: Fetcher) -> None:
        both = [
            asyncio.create_task(fetcher.fetch(f"{slow_web.url}/a.onnx", secret={"HTTP_AUTHORIZATION": word})),
            asyncio.create_task(fetcher.fetch(f"{slow_web.url}/b.onnx")),
        ]
        await under_way(slow_web, 2)
        seen = [f"{child.environ()} {child.cmdline()}" for child in children()]
        assert not any("models-own-secret" in text or "daemons-own-key" in text for text in seen)
        assert sum("pods-own-role" in text for text in seen) == 1  # who has a Secret does not have the pod's identity too
        slow_web.piece_seconds = 0.0
        await asyncio.gather(*both)

    pod.do(work)
    assert slow_web.authorizations == {word, ""}
    assert "models-own-secret" not in str(os.environ)
    for path in pod.cache.directory.rglob("*"):
        assert not path.is_file() or b"models-own-secret" not in path.read_bytes()


def test_a_key_that_means_nothing_is_refused(pod: Pod) -> None:
    reason = pod.refused("s3://models/a", secret={"PYTHONPATH": "/tmp"})
    assert reason.startswith("the Secret's key PYTHONPATH means nothing to s3://, which has AWS_ACCESS_KEY_ID, ")
    assert pod.refused("file:///models/a", secret={"AWS_REGION": "x"}) == "the Secret's key AWS_REGION means nothing to file://, which needs none"


def test_a_secret_that_is_too_large_is_refused(pod: Pod) -> None:
    assert f"{LARGEST_ORDER} are the most" in pod.refused("gs://models/a", secret={"GOOGLE_CREDENTIALS": "x" * LARGEST_ORDER})


def test_what_a_store_says_does_not_show_the_secret(pod: Pod) -> None:
    reason = pod.refused("http://127.0.0.1:9/hush-hush.onnx", secret={"HTTP_AUTHORIZATION": "127.0.0.1:9"})
    assert "Cannot connect to host ***" in reason
