import os
import subprocess
import sys
from pathlib import Path

import pytest

from wakeful.cluster.agent.cache import MANIFEST, Cache, Kept, NoRoom, to_evict

URI, OTHER = "s3://models/fraud", "s3://models/churn"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    cache = Cache(tmp_path / "cache")
    cache.sweep()
    return cache


def put(cache: Cache, content: bytes = b"x" * 100, uri: str = URI, name: str = "") -> str:
    with cache.draft(len(content)) as draft:
        (draft.files / (name or "model.onnx")).write_bytes(content)
        return cache.keep(draft, uri, name)


def artifacts(cache: Cache) -> list[str]:
    return sorted(path.name for path in cache.directory.iterdir() if len(path.name) == 64)


def kept(key: str, nbytes: int, last_used: float, in_use: bool = False) -> Kept:
    return Kept(key, nbytes, last_used, in_use)


# ── who goes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_goes_while_there_is_room() -> None:
    assert to_evict([kept("a", 10, 1)], 0) == []
    assert to_evict([kept("a", 10, 1)], -5) == []


def test_the_least_recently_used_go_first_and_no_more_than_needed() -> None:
    artifacts = [kept("new", 10, 3), kept("old", 10, 1), kept("middle", 10, 2)]
    chosen = to_evict(artifacts, 11)
    assert chosen is not None
    assert [one.key for one in chosen] == ["old", "middle"]


def test_what_is_in_use_stays() -> None:
    chosen = to_evict([kept("old", 10, 1, in_use=True), kept("new", 10, 2)], 10)
    assert chosen is not None
    assert [one.key for one in chosen] == ["new"]


def test_nobody_goes_if_that_would_not_suffice() -> None:
    assert to_evict([kept("old", 10, 1), kept("used", 100, 2, in_use=True)], 11) is None


# ── on disk ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_kept_is_found_by_its_revision(cache: Cache) -> None:
    use = cache.use(put(cache))
    assert use is not None
    assert (use.path / "model.onnx").read_bytes() == b"x" * 100
    assert use.nbytes == 100
    assert use.revision.startswith("sha256:")


def test_a_single_file_is_found_itself(cache: Cache) -> None:
    use = cache.use(put(cache, name="fraud.onnx"))
    assert use is not None
    assert use.path.name == "fraud.onnx"
    assert use.path.is_file()


def test_the_same_bytes_from_elsewhere_are_the_same_artifact(cache: Cache) -> None:
    assert put(cache, uri=URI) == put(cache, uri=OTHER)
    assert len(artifacts(cache)) == 1


@pytest.mark.parametrize("other", [{"content": b"y" * 100}, {"name": "other.onnx"}], ids=["content", "name"])
def test_other_bytes_and_other_names_are_another(cache: Cache, other: dict[str, str]) -> None:
    assert put(cache) != put(cache, **other)  # type: ignore[arg-type] # content is bytes


def test_a_revision_that_is_none_is_refused(cache: Cache) -> None:
    with pytest.raises(ValueError, match=r"sha256: and 64 hexadecimal digits, not '\.\./\.\.'"):
        cache.use("../..")


def test_what_is_not_here_is_not_found(cache: Cache) -> None:
    assert cache.use("sha256:" + 64 * "0") is None


def test_a_state_is_remembered_even_without_the_artifact(cache: Cache) -> None:
    with cache.draft(1) as draft:
        (draft.files / "a").write_bytes(b"a")
        revision = cache.keep(draft, URI, "")
        cache.note(URI, "etag 1", revision, draft)
    assert cache.known(URI, "etag 1") == revision
    assert cache.known(URI, "etag 2") is None
    assert cache.known(OTHER, "etag 1") is None


def test_a_file_that_was_cut_short_makes_it_broken_and_it_is_replaced(cache: Cache) -> None:
    revision = put(cache)
    file = cache.directory / artifacts(cache)[0] / "files" / "model.onnx"
    file.write_bytes(b"x")
    assert cache.use(revision) is None
    assert put(cache) == revision
    assert cache.use(revision) is not None
    assert file.stat().st_size == 100


def test_a_draft_that_fails_leaves_nothing(cache: Cache) -> None:
    def fail() -> None:
        with cache.draft(10) as draft:
            (draft.files / "model.onnx").write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert sorted(path.name for path in cache.directory.iterdir()) == ["room", "states"]


def test_what_a_dead_process_left_is_swept_and_what_a_living_one_makes_is_not(cache: Cache) -> None:
    code = "import os, sys; from pathlib import Path; from wakeful.prepared import work; print(work.make(Path(sys.argv[1]))[0].name); os._exit(9)"
    dead = subprocess.run([sys.executable, "-c", code, str(cache.directory)], capture_output=True, text=True, check=False).stdout.strip()
    with cache.draft(1) as draft:
        assert (cache.directory / dead).is_dir()
        cache.sweep()
        assert not (cache.directory / dead).exists()
        assert draft.files.is_dir()


def test_the_limit_evicts_the_least_recently_used(cache: Cache) -> None:
    cache.limit = 250
    first, second = put(cache, b"a" * 100), put(cache, b"b" * 100)
    for revision, when in ((first, 2000), (second, 1000)):
        os.utime(cache.directory / revision[7:] / MANIFEST, (when, when))
    third = put(cache, b"c" * 100)
    assert artifacts(cache) == sorted(revision[7:] for revision in (first, third))


def test_use_makes_it_recent_and_keeps_it(cache: Cache) -> None:
    cache.limit = 250
    first, second = put(cache, b"a" * 100), put(cache, b"b" * 100)
    use = cache.use(first)
    assert use is not None
    os.utime(cache.directory / first[7:] / MANIFEST, (1, 1))
    put(cache, b"c" * 100)
    assert first[7:] in artifacts(cache)
    assert second[7:] not in artifacts(cache)
    use.release()
    use.release()
    os.utime(cache.directory / first[7:] / MANIFEST, (1, 1))
    put(cache, b"d" * 100)
    assert first[7:] not in artifacts(cache)


def test_no_room_says_who_has_it_and_what_to_do(cache: Cache) -> None:
    cache.limit = 150
    use = cache.use(put(cache))
    assert use is not None
    with pytest.raises(NoRoom, match=r"100 B do not fit .* 100 B are in use by 1 models, of its 150 B, .* raise the Server's cache.size"):
        put(cache, b"b" * 100)
    use.release()


def test_what_others_are_fetching_counts(cache: Cache) -> None:
    cache.limit = 150
    with cache.draft(100), pytest.raises(NoRoom, match="100 B are being fetched"):
        put(cache, b"b" * 100)


def test_one_turn_a_uri(cache: Cache) -> None:
    """Another process waits for the URI that has its turn here, and for no other."""
    code = """
import sys
from pathlib import Path
from wakeful.cluster.agent.cache import Cache
for uri in sys.argv[2:]:
    with Cache(Path(sys.argv[1])).turn(uri):
        print(uri, flush=True)
"""
    with cache.turn(URI):
        process = subprocess.Popen([sys.executable, "-c", code, str(cache.directory), OTHER, URI], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == OTHER
        assert process.poll() is None
    assert process.stdout.readline().strip() == URI
    assert process.wait(30) == 0
    process.stdout.close()
