import fcntl
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.clock import Clock
from wakeful.prepared.knowledge import Knowledge, Known
from wakeful.runtime.messages import Signature, TensorSpec, Verdict

LIBRARY = "onnxruntime 1.32.0"
SIGNATURE = Signature((TensorSpec("x", "FP32", ("N", 4, None)),), (TensorSpec("y", "INT64", (), optional=True),))
VERDICT = Verdict(True, "rows do not influence each other", True)
FULL = Known(SIGNATURE, VERDICT, 5_000_000_000, 2_000_000, {1: 0.5, 2: 0.25}, 8)


def restarted(directory: Path) -> Knowledge:
    return Knowledge(directory)


def test_what_is_learnt_is_recalled_after_a_restart(tmp_path: Path) -> None:
    knowledge = Knowledge(tmp_path / "new" / "wakeful")
    assert knowledge.recall("a", LIBRARY) is None
    knowledge.learn("a", LIBRARY, **{name: getattr(FULL, name) for name in FULL.__struct_fields__})
    assert knowledge.recall("a", LIBRARY) == FULL
    knowledge.save()
    assert restarted(tmp_path / "new" / "wakeful").recall("a", LIBRARY) == FULL
    assert (tmp_path / "new" / "wakeful").stat().st_mode & 0o777 == 0o700


def test_lessons_add_up(tmp_path: Path) -> None:
    knowledge = Knowledge(tmp_path)
    knowledge.learn("a", LIBRARY, signature=SIGNATURE, lone_seconds={1: 0.5, 2: 0.3})
    knowledge.save()
    knowledge = restarted(tmp_path)
    knowledge.learn("a", LIBRARY, verdict=VERDICT, lone_seconds={2: 0.25})
    knowledge.learn("a", LIBRARY, safe_rows=8)
    assert knowledge.recall("a", LIBRARY) == Known(signature=SIGNATURE, verdict=VERDICT, lone_seconds={1: 0.5, 2: 0.25}, safe_rows=8)


def test_other_files_and_other_libraries_are_other_models(tmp_path: Path) -> None:
    knowledge = Knowledge(tmp_path)
    knowledge.learn("a", LIBRARY, safe_rows=8)
    assert knowledge.recall("b", LIBRARY) is None
    assert knowledge.recall("a", "onnxruntime 1.33.0") is None


def test_an_unknown_field_is_an_error(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"colour": "red"}
    with pytest.raises(TypeError):
        Knowledge(tmp_path).learn("a", LIBRARY, **fields)


def test_only_news_are_written(tmp_path: Path) -> None:
    knowledge = Knowledge(tmp_path)
    knowledge.save()
    assert list(tmp_path.iterdir()) == []
    knowledge.learn("a", LIBRARY, safe_rows=8)
    assert knowledge.dirty
    knowledge.save()
    assert not knowledge.dirty
    written = (tmp_path / "knowledge.msgpack").stat().st_ino
    knowledge.learn("a", LIBRARY, safe_rows=8)
    knowledge.recall("a", LIBRARY)
    knowledge.save()
    assert (tmp_path / "knowledge.msgpack").stat().st_ino == written


def test_the_oldest_use_is_dropped(tmp_path: Path) -> None:
    knowledge = Knowledge(tmp_path, limit=3, now=Clock(tick=1))
    for name in "abc":
        knowledge.learn(name, LIBRARY, safe_rows=1)
    knowledge.recall("a", LIBRARY)
    knowledge.learn("d", LIBRARY, safe_rows=1)
    assert [name for name in "abcd" if knowledge.recall(name, LIBRARY)] == ["a", "c", "d"]


def test_the_order_of_use_survives_a_restart(tmp_path: Path) -> None:
    now = Clock(tick=1)
    knowledge = Knowledge(tmp_path, limit=3, now=now)
    for name in "abc":
        knowledge.learn(name, LIBRARY, safe_rows=1)
    knowledge.save()
    knowledge.recall("a", LIBRARY)
    knowledge.learn("c", LIBRARY, safe_rows=2)
    knowledge.save()
    knowledge = Knowledge(tmp_path, limit=3, now=now)
    knowledge.learn("d", LIBRARY, safe_rows=1)
    assert [name for name in "abcd" if knowledge.recall(name, LIBRARY)] == ["a", "c", "d"]
    knowledge = Knowledge(tmp_path, limit=2, now=now)
    assert [name for name in "abc" if knowledge.recall(name, LIBRARY)] == ["a", "c"]


def test_daemons_that_share_a_file_add_to_it(tmp_path: Path) -> None:
    one, two = Knowledge(tmp_path), Knowledge(tmp_path)
    one.learn("a", LIBRARY, safe_rows=1)
    one.learn("both", LIBRARY, safe_rows=1)
    two.learn("b", LIBRARY, safe_rows=2)
    one.save()
    two.save()
    two.learn("both", LIBRARY, safe_rows=2)
    two.save()
    one.learn("c", LIBRARY, safe_rows=3)
    one.save()
    after = restarted(tmp_path)
    rows = {name: known.safe_rows for name in ("a", "b", "c", "both") if (known := after.recall(name, LIBRARY))}
    assert rows == {"a": 1, "b": 2, "c": 3, "both": 2}


def test_a_removed_file_is_written_whole_again(tmp_path: Path) -> None:
    knowledge = Knowledge(tmp_path)
    knowledge.learn("a", LIBRARY, safe_rows=1)
    knowledge.save()
    (tmp_path / "knowledge.msgpack").unlink()
    knowledge.learn("b", LIBRARY, safe_rows=2)
    knowledge.save()
    assert restarted(tmp_path).recall("a", LIBRARY) == Known(safe_rows=1)


FOREIGN = [b"", b"\xc1", b"not a map", msgspec.msgpack.encode(["wakeful", 999, {}]), msgspec.msgpack.encode(["other", 1, {}])]


@pytest.mark.parametrize("content", FOREIGN)
def test_a_broken_or_foreign_file_is_ignored_and_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "knowledge.msgpack").write_bytes(content)
    knowledge = Knowledge(tmp_path)
    assert knowledge.recall("a", LIBRARY) is None
    knowledge.learn("a", LIBRARY, safe_rows=1)
    knowledge.save()
    assert restarted(tmp_path).recall("a", LIBRARY) == Known(safe_rows=1)


def test_a_file_cut_short_is_ignored(tmp_path: Path) -> None:
    knowledge = Knowledge(tmp_path)
    knowledge.learn("a", LIBRARY, signature=SIGNATURE)
    knowledge.save()
    path = tmp_path / "knowledge.msgpack"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert restarted(tmp_path).recall("a", LIBRARY) is None


def test_a_death_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    knowledge = Knowledge(tmp_path)
    knowledge.learn("a", LIBRARY, safe_rows=1)
    knowledge.save()
    (tmp_path / "knowledge.new").write_bytes(b"half a fi")
    knowledge = restarted(tmp_path)
    assert knowledge.recall("a", LIBRARY) == Known(safe_rows=1)
    knowledge.learn("b", LIBRARY, safe_rows=2)
    knowledge.save()
    assert restarted(tmp_path).recall("b", LIBRARY) == Known(safe_rows=2)


def test_while_another_daemon_writes_nothing_is_lost(tmp_path: Path) -> None:
    knowledge = Knowledge(tmp_path)
    knowledge.learn("a", LIBRARY, safe_rows=1)
    with (tmp_path / "knowledge.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        knowledge.save()
    assert knowledge.dirty
    assert restarted(tmp_path).recall("a", LIBRARY) is None
    knowledge.save()
    assert restarted(tmp_path).recall("a", LIBRARY) == Known(safe_rows=1)


def test_a_directory_that_cannot_be_written_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    knowledge = Knowledge(tmp_path / "file" / "wakeful")
    knowledge.learn("a", LIBRARY, safe_rows=1)
    knowledge.save()
    knowledge.save()
    assert knowledge.recall("a", LIBRARY) == Known(safe_rows=1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
