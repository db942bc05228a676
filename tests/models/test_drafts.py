"""Files on their way into the models directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wakeful.errors import Unavailable
from wakeful.models.drafts import PREFIX, Draft, sweep, write_whole


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_draft_is_hidden_until_it_is_put(tmp_path: Path) -> None:
    draft = Draft(tmp_path, "m.onnx", ".onnx", "onnx")
    draft.write(b"new")
    (hidden,) = names(tmp_path)
    assert hidden.startswith(PREFIX)
    assert hidden.endswith(".onnx")
    draft.sync()
    draft.put(tmp_path / "m.onnx")
    draft.discard()
    draft.discard()
    assert names(tmp_path) == ["m.onnx"]
    assert (tmp_path / "m.onnx").read_bytes() == b"new"
    assert (tmp_path / "m.onnx").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_is_replaced_stays_whole_for_who_has_it_open(tmp_path: Path) -> None:
    target = tmp_path / "m.onnx"
    target.write_bytes(b"old")
    with target.open("rb") as file:
        write_whole(target, "new")
        assert file.read() == b"old"
    assert target.read_bytes() == b"new"


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "m.onnx").symlink_to("secret")
    write_whole(tmp_path / "m.onnx", "new")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "m.onnx").is_symlink()


def test_what_a_crash_has_left_is_swept_and_what_others_write_is_not(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    leave = "import os, sys, pathlib; from wakeful.models.drafts import Draft; Draft(pathlib.Path(sys.argv[1]), 'x', '.onnx', ''); os._exit(9)"
    subprocess.run([sys.executable, "-c", leave, str(tmp_path)], check=False)
    draft = Draft(tmp_path, "y", ".onnx", "onnx")
    assert len(names(tmp_path)) == 3
    sweep(tmp_path)
    assert names(tmp_path) == [draft.path.name, "m.onnx"]
    draft.discard()
    sweep(tmp_path / "nowhere")


def test_a_place_that_takes_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        Draft(tmp_path / "nowhere", "m.onnx", ".onnx", "onnx")
    (tmp_path / "m.onnx").mkdir()
    draft = Draft(tmp_path, "m.onnx", ".onnx", "onnx")
    with pytest.raises(Unavailable, match="nothing has changed"):
        draft.put(tmp_path / "m.onnx")
    draft.discard()
    assert names(tmp_path) == ["m.onnx"]
