"""Deaths between two steps are the states that they leave on disk."""

import errno
import logging
import os
import resource
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.clock import Clock
from wakeful.prepared.cache import MANIFEST, TOUCH_EVERY, PreparedCache
from wakeful.prepared.identity import identity_of

BACKEND, LIBRARY = "onnx", "onnxruntime 1.32.0"
PLENTY = 1 << 30


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path, "model")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "wakeful"


@pytest.fixture
def cache(directory: Path) -> PreparedCache:
    return PreparedCache(directory, PLENTY, cpu="cpu")


def make_model(tmp_path: Path, name: str) -> Path:
    path = tmp_path / "models" / f"{name}.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(name.encode())
    return path


def begin(cache: PreparedCache, size: int = 100) -> Path:
    temporary = cache.begin()
    assert temporary is not None
    assert list(temporary.iterdir()) == []
    (temporary / "model.onnx").write_bytes(b"optimised")
    (temporary / "weights.bin").write_bytes(bytes(size))
    return temporary


def prepare(cache: PreparedCache, model: Path, size: int = 100, library: str = LIBRARY) -> Path | None:
    return cache.commit(begin(cache, size), model, identity_of(model), BACKEND, library)


def find(cache: PreparedCache, model: Path) -> Path | None:
    return cache.find(identity_of(model), BACKEND, LIBRARY)


def copies(cache: PreparedCache) -> set[str]:
    return {path.name for path in cache.directory.iterdir() if path.name != "index" and not path.name.startswith("work-")}


def unfinished(cache: PreparedCache) -> list[Path]:
    return [path for path in cache.directory.glob("work-*/*") if path.name != "lock"]


# ── one copy's life ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_committed_copy_is_found(cache: PreparedCache, model: Path) -> None:
    assert find(cache, model) is None
    copy = prepare(cache, model)
    assert copy is not None
    assert find(cache, model) == copy
    assert (copy / "model.onnx").read_bytes() == b"optimised"
    assert {path.name for path in copy.iterdir()} == {"model.onnx", "weights.bin", MANIFEST}
    assert unfinished(cache) == []


def test_a_copy_outlives_its_daemon(cache: PreparedCache, model: Path) -> None:
    copy = prepare(cache, model)
    cache.close()
    later = PreparedCache(cache.directory, PLENTY, cpu="cpu")
    assert find(later, model) == copy is not None


def test_nobody_else_may_look(cache: PreparedCache, model: Path) -> None:
    copy = prepare(cache, model)
    assert copy is not None
    for path in (cache.directory, cache.directory / "index", copy):
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_discarded_copy_is_gone(cache: PreparedCache) -> None:
    temporary = begin(cache)
    cache.discard(temporary)
    cache.discard(temporary)
    assert unfinished(cache) == []


def test_a_copy_for_another_library_backend_or_processor_is_not_found(cache: PreparedCache, model: Path) -> None:
    prepare(cache, model)
    identity = identity_of(model)
    assert cache.find(identity, BACKEND, "onnxruntime 1.33.0") is None
    assert cache.find(identity, "xgboost", LIBRARY) is None
    assert PreparedCache(cache.directory, PLENTY, cpu="another").find(identity, BACKEND, LIBRARY) is None
    assert find(cache, model) is not None


def test_copies_for_several_libraries_live_together(cache: PreparedCache, model: Path) -> None:
    old, new = prepare(cache, model), prepare(cache, model, library="onnxruntime 1.33.0")
    assert old != new
    assert (find(cache, model), cache.find(identity_of(model), BACKEND, "onnxruntime 1.33.0")) == (old, new)


def test_a_changed_model_is_not_found_under_its_old_copy(cache: PreparedCache, model: Path) -> None:
    prepare(cache, model)
    model.write_bytes(b"a new version")
    assert find(cache, model) is None
    assert prepare(cache, model) == find(cache, model) is not None


def test_models_of_equal_content_share_a_copy(cache: PreparedCache, model: Path, tmp_path: Path) -> None:
    twin = make_model(tmp_path, "twin")
    twin.write_bytes(model.read_bytes())
    assert prepare(cache, model) == prepare(cache, twin) is not None
    assert len(copies(cache)) == 1
    assert unfinished(cache) == []


# ── what must not become a copy ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_replaced_meanwhile_is_not_committed(cache: PreparedCache, model: Path) -> None:
    temporary, identity = begin(cache), identity_of(model)
    model.write_bytes(b"a new version")
    assert cache.commit(temporary, model, identity, BACKEND, LIBRARY) is None
    assert find(cache, model) is None
    assert not temporary.exists()
    assert copies(cache) == set()
    assert cache.writable


def test_a_model_removed_meanwhile_is_not_committed(cache: PreparedCache, model: Path) -> None:
    temporary, identity = begin(cache), identity_of(model)
    model.unlink()
    assert cache.commit(temporary, model, identity, BACKEND, LIBRARY) is None
    assert not temporary.exists()
    assert cache.writable


def test_a_model_whose_weights_cannot_be_watched_is_not_committed(cache: PreparedCache, model: Path) -> None:
    model.write_bytes(b"\n\x08location\x12\x0fsub/weights.bin")
    assert prepare(cache, model) is None
    assert copies(cache) == set()


def test_an_empty_copy_is_not_committed(cache: PreparedCache, model: Path) -> None:
    temporary = cache.begin()
    assert temporary is not None
    assert cache.commit(temporary, model, identity_of(model), BACKEND, LIBRARY) is None
    assert find(cache, model) is None


# ── broken copies ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def cut_manifest(copy: Path) -> None:
    path = copy / MANIFEST
    path.write_bytes(path.read_bytes()[:-20])


def foreign_manifest(copy: Path) -> None:
    (copy / MANIFEST).write_text('{"format": "something else"}')


def newer_format(copy: Path) -> None:
    manifest = msgspec.json.decode((copy / MANIFEST).read_bytes())
    (copy / MANIFEST).write_bytes(msgspec.json.encode(manifest | {"format": manifest["format"] + 1}))


def no_manifest(copy: Path) -> None:
    (copy / MANIFEST).unlink()


def cut_weights(copy: Path) -> None:
    os.truncate(copy / "weights.bin", 50)


def no_weights(copy: Path) -> None:
    (copy / "weights.bin").unlink()


def emptied(copy: Path) -> None:
    for path in copy.iterdir():
        path.unlink()


def a_file_in_its_place(copy: Path) -> None:
    emptied(copy)
    copy.rmdir()
    copy.write_text("?")


@pytest.mark.parametrize("damage", [
    cut_manifest, foreign_manifest, newer_format, no_manifest, cut_weights, no_weights, emptied, a_file_in_its_place,
])
def test_a_broken_copy_is_not_found_and_is_made_again(cache: PreparedCache, model: Path, damage: Callable[[Path], None]) -> None:
    copy = prepare(cache, model)
    assert copy is not None
    damage(copy)
    assert find(cache, model) is None
    assert prepare(cache, model) == copy
    assert find(cache, model) == copy
    assert (copy / "weights.bin").stat().st_size == 100
    assert unfinished(cache) == []


@pytest.mark.parametrize("content", ["", "0123", "../../../etc", "\0", "x" * 10_000])
def test_a_broken_index_is_not_followed(cache: PreparedCache, model: Path, content: str) -> None:
    copy = prepare(cache, model)
    (entry,) = (cache.directory / "index").iterdir()
    entry.write_text(content)
    assert find(cache, model) is None
    assert prepare(cache, model) == copy == find(cache, model)


def test_a_forgotten_copy_is_gone_and_can_be_made_again(cache: PreparedCache, model: Path, tmp_path: Path) -> None:
    other = make_model(tmp_path, "other")
    copy, neighbour = prepare(cache, model), prepare(cache, other)
    cache.forget(identity_of(model))
    assert find(cache, model) is None
    assert copy is not None
    assert not copy.exists()
    assert find(cache, other) == neighbour
    assert prepare(cache, model) == copy
    cache.forget("0" * 32)
    assert find(cache, model) == copy


# ── the same content under a new identity ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_that_was_only_touched_gets_its_copy_back(cache: PreparedCache, model: Path) -> None:
    copy = prepare(cache, model)
    os.utime(model, (1, 1))
    assert find(cache, model) is None
    assert cache.adopt(model, identity_of(model), BACKEND, LIBRARY) == copy is not None
    assert find(cache, model) == copy


def test_a_model_of_other_content_adopts_nothing(cache: PreparedCache, model: Path) -> None:
    prepare(cache, model)
    old = identity_of(model)
    model.write_bytes(b"a new version")
    assert cache.adopt(model, identity_of(model), BACKEND, LIBRARY) is None
    assert cache.adopt(model, old, BACKEND, LIBRARY) is None
    model.unlink()
    assert cache.adopt(model, old, BACKEND, LIBRARY) is None


# ── size ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def last_used(copy: Path | None, time: float) -> None:
    assert copy is not None
    os.utime(copy / MANIFEST, (time, time))


def test_the_least_recently_used_copies_give_way(directory: Path, tmp_path: Path) -> None:
    cache = PreparedCache(directory, 35_000, cpu="cpu")
    a, b, c, d = (make_model(tmp_path, name) for name in "abcd")
    last_used(prepare(cache, a, 10_000), 2000)
    last_used(prepare(cache, b, 10_000), 1000)
    last_used(prepare(cache, c, 10_000), 3000)
    prepare(cache, d, 10_000)
    assert [find(cache, model) is not None for model in (a, b, c, d)] == [True, False, True, True]
    assert len(copies(cache)) == len(list((directory / "index").iterdir())) == 3
    assert unfinished(cache) == []


def test_the_copy_just_made_stays_whatever_its_size(directory: Path, tmp_path: Path) -> None:
    cache = PreparedCache(directory, 1000, cpu="cpu")
    small, large = make_model(tmp_path, "small"), make_model(tmp_path, "large")
    last_used(prepare(cache, small), 1000)
    prepare(cache, large, 10_000)
    assert find(cache, small) is None
    assert find(cache, large) is not None


def test_broken_copies_go_first(directory: Path, tmp_path: Path) -> None:
    cache = PreparedCache(directory, 25_000, cpu="cpu")
    a, b, c = (make_model(tmp_path, name) for name in "abc")
    last_used(prepare(cache, a, 10_000), 1000)
    broken = prepare(cache, b, 10_000)
    assert broken is not None
    (broken / MANIFEST).unlink()
    prepare(cache, c, 10_000)
    assert not broken.exists()
    assert find(cache, a) is not None


def test_finding_notes_the_use_once_an_hour(directory: Path, model: Path) -> None:
    now = Clock(2e9)
    cache = PreparedCache(directory, PLENTY, cpu="cpu", now=now)
    copy = prepare(cache, model)
    assert copy is not None

    def noted() -> float:
        find(cache, model)
        return (copy / MANIFEST).stat().st_mtime

    last_used(copy, now.time)
    now.time += TOUCH_EVERY - 1
    assert noted() == now.time - TOUCH_EVERY + 1
    now.time += 1
    assert noted() == now.time
    now.time -= 10 * TOUCH_EVERY
    assert noted() == now.time  # a use in the future would keep the copy for ever


# ── several daemons ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_daemons_share_what_either_makes(directory: Path, model: Path) -> None:
    one, two = PreparedCache(directory, PLENTY, cpu="cpu"), PreparedCache(directory, PLENTY, cpu="cpu")
    copy = prepare(one, model)
    assert find(two, model) == copy is not None
    two.forget(identity_of(model))
    assert find(one, model) is None
    one.forget(identity_of(model))
    assert one.writable
    assert two.writable


def test_of_two_equal_copies_the_first_wins(directory: Path, model: Path) -> None:
    one, two = PreparedCache(directory, PLENTY, cpu="cpu"), PreparedCache(directory, PLENTY, cpu="cpu")
    first, second = begin(one), begin(two)
    copy = one.commit(first, model, identity_of(model), BACKEND, LIBRARY)
    assert copy is not None
    inode = copy.stat().st_ino
    assert two.commit(second, model, identity_of(model), BACKEND, LIBRARY) == copy
    assert copy.stat().st_ino == inode
    assert not second.exists()


def test_a_starting_daemon_leaves_the_work_of_the_living_alone(directory: Path, model: Path) -> None:
    one = PreparedCache(directory, PLENTY, cpu="cpu")
    temporary = begin(one)
    PreparedCache(directory, PLENTY, cpu="cpu")
    assert one.commit(temporary, model, identity_of(model), BACKEND, LIBRARY) is not None


def test_a_starting_daemon_clears_the_work_of_the_dead(directory: Path, model: Path) -> None:
    died_early = directory / "work-early"
    died_early.mkdir(parents=True)
    died_late = directory / "work-late" / "tmp123"
    died_late.mkdir(parents=True)
    (died_late / "weights.bin").write_bytes(bytes(100))
    (directory / "work-late" / "lock").touch()
    (directory / "work-file").touch()
    (directory / "knowledge.msgpack").touch()
    PreparedCache(directory, PLENTY, cpu="cpu")
    assert sorted(path.name for path in directory.iterdir()) == ["index", "knowledge.msgpack", "work-file"]


def test_closing_takes_the_unfinished_along(cache: PreparedCache) -> None:
    begin(cache)
    cache.close()
    assert list(cache.directory.glob("work-*")) == []


def test_a_copy_without_index_entry_is_taken_over(cache: PreparedCache, model: Path) -> None:
    """As after a death between the rename and the entry."""
    copy = prepare(cache, model)
    (entry,) = (cache.directory / "index").iterdir()
    entry.unlink()
    assert find(cache, model) is None
    assert prepare(cache, model) == copy == find(cache, model)


def test_an_entry_without_copy_is_cleared(cache: PreparedCache, model: Path, tmp_path: Path) -> None:
    copy = prepare(cache, model)
    assert copy is not None
    for path in copy.iterdir():
        path.unlink()
    copy.rmdir()
    assert find(cache, model) is None
    prepare(cache, make_model(tmp_path, "other"))
    assert len(list((cache.directory / "index").iterdir())) == 1


def test_a_directory_removed_while_the_daemon_lives_comes_back(cache: PreparedCache, model: Path) -> None:
    temporary = begin(cache)
    cache.directory.rename(cache.directory.with_name("away"))
    assert cache.commit(temporary, model, identity_of(model), BACKEND, LIBRARY) is None
    assert find(cache, model) is None
    cache.forget(identity_of(model))
    assert prepare(cache, model) == find(cache, model) is not None


# ── a directory that cannot be written ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_is_written_again_when_there_is_room(cache: PreparedCache, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("wakeful.prepared.cache.mkdtemp", full)
        assert cache.begin() is None
    assert cache.writable
    assert prepare(cache, model) is not None


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_file_in_place_of_the_directory_is_warned_of_once(tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    cache = PreparedCache(tmp_path / "file" / "wakeful", PLENTY, cpu="cpu")
    identity = identity_of(model)
    assert not cache.writable
    assert cache.begin() is None
    assert cache.find(identity, BACKEND, LIBRARY) is None
    assert cache.adopt(model, identity, BACKEND, LIBRARY) is None
    assert cache.commit(tmp_path / "absent", model, identity, BACKEND, LIBRARY) is None
    cache.forget(identity)
    cache.close()
    assert len(warnings(caplog)) == 1


def test_a_full_disk_ends_all_preparation(cache: PreparedCache, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    temporary = begin(cache)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))  # no file may grow, as on a full disk
    try:
        copy = cache.commit(temporary, model, identity_of(model), BACKEND, LIBRARY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert copy is None
    assert not temporary.exists()
    assert copies(cache) == set()
    assert cache.begin() is None
    assert len(warnings(caplog)) == 1


def test_a_copy_that_cannot_be_entered_can_still_be_used(cache: PreparedCache, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    temporary = begin(cache)
    (cache.directory / "index").rmdir()
    (cache.directory / "index").touch()
    copy = cache.commit(temporary, model, identity_of(model), BACKEND, LIBRARY)
    assert copy is not None
    assert (copy / MANIFEST).exists()
    assert cache.begin() is None
    assert len(warnings(caplog)) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_copies_in_a_read_only_directory_are_still_found(cache: PreparedCache, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    copy = prepare(cache, model)
    last_used(copy, 1000)
    cache.directory.chmod(0o500)
    try:
        reader = PreparedCache(cache.directory, PLENTY, cpu="cpu")
        assert find(reader, model) == copy is not None
        assert reader.begin() is None
        assert len(warnings(caplog)) == 1
    finally:
        cache.directory.chmod(0o700)
