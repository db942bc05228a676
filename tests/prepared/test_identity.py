import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests import onnx_models
from wakeful.prepared.identity import content_hash, cpu_features, data_elsewhere, identity_of, model_files


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m" / "model.onnx"
    path.parent.mkdir()
    path.write_bytes(b"graph")
    return path


def beside(model: Path, name: str, content: bytes = b"weights") -> Path:
    path = model.with_name(name)
    path.write_bytes(content)
    return path


def names(model: Path) -> list[str]:
    return [path.name for path in model_files(model)]


# ── which files ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_alone_in_its_directory_a_model_owns_everything_that_may_hold_weights(model: Path) -> None:
    for name in ("model.onnx.data", "weights.bin", "layer.0.weight", "README.md", "tokenizer.json", ".hidden", "server.log"):
        beside(model, name)
    (model.parent / "directory.bin").mkdir()
    assert names(model) == ["model.onnx", "layer.0.weight", "model.onnx.data", "weights.bin"]


def test_among_others_a_file_belongs_to_the_longest_name_that_begins_its_own(model: Path) -> None:
    other = beside(model, "model_int8.onnx")
    third = beside(model, "decoder.onnx")
    for name in ("model.onnx_data", "model_int8.onnx_data", "decoder.bin"):
        beside(model, name)
    assert names(model) == ["model.onnx", "model.onnx_data"]
    assert names(other) == ["model_int8.onnx", "model_int8.onnx_data"]
    assert names(third) == ["decoder.onnx", "decoder.bin"]


def test_a_file_named_like_no_model_belongs_to_all(model: Path) -> None:
    other = beside(model, "decoder.onnx")
    beside(model, "shared.bin")
    assert names(model) == ["model.onnx", "shared.bin"]
    assert names(other) == ["decoder.onnx", "shared.bin"]


def test_other_models_and_pickles_are_nobody_s_weights(model: Path) -> None:
    trees = beside(model, "fraud.xgb.json")
    for name in ("risk.cbm", "churn.ubj", "old.joblib", "shared.bin"):
        beside(model, name)
    assert names(model) == ["model.onnx", "shared.bin"]
    assert names(trees) == ["fraud.xgb.json"], "trees keep nothing in other files"
    assert names(beside(model, "fraud.json")) == ["fraud.json"]


def test_a_directory_is_a_model_of_all_its_files(model: Path) -> None:
    beside(model, "code.py")
    assert names(model.parent) == ["code.py", "model.onnx"]


def test_directories_below_count_but_not_what_others_keep_there(model: Path) -> None:
    for name in ("part/code.py", "part/__pycache__/code.pyc", ".git/HEAD", "venv/pyvenv.cfg", "venv/lib/numpy.py"):
        file = model.parent / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert names(model.parent) == ["model.onnx", "code.py"]
    before = identity_of(model.parent)
    model.with_name("part").joinpath("code.py").write_text("x = 1")
    assert identity_of(model.parent) != before


def test_what_lies_beside_and_is_no_file_does_no_harm(model: Path) -> None:
    model.with_name("loop.bin").symlink_to("loop.bin")
    model.with_name("dangling.bin").symlink_to("nowhere")
    os.mkfifo(model.with_name("pipe.bin"))
    assert names(model) == ["model.onnx"]
    assert identity_of(model)


# ── identity ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def replaced(path: Path) -> None:
    """By another inode of the same size and times."""
    status = path.stat()
    fresh = path.with_name("fresh")
    fresh.write_bytes(bytes(status.st_size))
    os.utime(fresh, ns=(status.st_atime_ns, status.st_mtime_ns))
    fresh.replace(path)


def touched(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"!")


@pytest.mark.parametrize("change", [replaced, touched, grown])
@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data"])
def test_identity_follows_every_file(model: Path, change: Callable[[Path], None], name: str) -> None:
    beside(model, "model.onnx.data")
    before = identity_of(model)
    assert identity_of(model) == before
    change(model.with_name(name))
    assert identity_of(model) != before


def test_identity_sees_a_rewrite_that_hides_its_time(model: Path) -> None:
    before, status = identity_of(model), model.stat()
    for _ in range(100_000):  # the kernel's clock moves in steps of some milliseconds
        model.write_bytes(b"GRAPH")
        os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
        if model.stat().st_ctime_ns != status.st_ctime_ns:
            break
    assert model.stat().st_mtime_ns == status.st_mtime_ns
    assert identity_of(model) != before


def test_identity_follows_companions_that_come_and_go(model: Path) -> None:
    before = identity_of(model)
    companion = beside(model, "weights.bin")
    assert identity_of(model) != before
    companion.unlink()
    assert identity_of(model) == before


def test_directory_that_was_quiet_is_read_once_and_anew_when_it_changes(model: Path) -> None:
    os.utime(model.parent, (1e9, 1e9))
    before = identity_of(model)
    assert identity_of(model) == before
    beside(model, "weights.bin")
    assert identity_of(model) != before


def test_directory_that_has_just_changed_is_not_taken_as_known(model: Path) -> None:
    before, status = identity_of(model), model.parent.stat()
    beside(model, "weights.bin")
    os.utime(model.parent, ns=(status.st_atime_ns, status.st_mtime_ns))  # as on a file system with coarse times
    assert identity_of(model) != before


def test_a_thousand_models_and_their_weights_share_a_directory(model: Path) -> None:
    for number in range(1000):
        beside(model, f"m{number}.onnx", b"")
        beside(model, f"m{number}.onnx.data", b"")
    os.utime(model.parent, (1e9, 1e9))
    assert [names(model.with_name(f"m{number}.onnx")) for number in range(1000)] == [
        [f"m{number}.onnx", f"m{number}.onnx.data"] for number in range(1000)
    ]


def test_identity_does_not_follow_neighbours(model: Path) -> None:
    beside(model, "other.onnx")
    before = identity_of(model)
    grown(beside(model, "other.onnx.data"))
    beside(model, "models.toml")
    assert identity_of(model) == before


def test_identity_follows_a_link_to_another_version(tmp_path: Path, model: Path) -> None:
    (tmp_path / "v2").mkdir()
    os.link(model, tmp_path / "v2" / "model.onnx")
    current = tmp_path / "current"
    current.symlink_to("m")
    before = identity_of(current / "model.onnx")
    current.unlink()
    current.symlink_to("v2")
    assert identity_of(current / "model.onnx") != before


def test_identity_of_nothing(model: Path) -> None:
    with pytest.raises(FileNotFoundError):
        identity_of(model.with_name("absent.onnx"))
    with pytest.raises(FileNotFoundError):
        identity_of(model.parent / "absent" / "model.onnx")
    with pytest.raises(FileNotFoundError):
        content_hash(model.with_name("absent.onnx"))


def test_identity_is_fit_for_a_file_name(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"m\xff \n.onnx")
    odd.write_bytes(b"graph")
    assert identity_of(odd).isalnum()
    assert content_hash(odd).isalnum()


# ── content ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_content_is_the_same_wherever_it_lies(tmp_path: Path, model: Path) -> None:
    beside(model, "weights.bin")
    copy = tmp_path / "renamed.onnx"
    copy.write_bytes(model.read_bytes())
    beside(copy, "weights.bin")
    assert content_hash(copy) == content_hash(model)
    assert identity_of(copy) != identity_of(model)


@pytest.mark.parametrize("name", ["model.onnx", "weights.bin"])
def test_content_follows_every_byte(model: Path, name: str) -> None:
    beside(model, "weights.bin")
    before = content_hash(model)
    data = bytearray(model.with_name(name).read_bytes())
    data[-1] ^= 1
    model.with_name(name).write_bytes(data)
    assert content_hash(model) != before


def test_content_follows_the_names_of_companions(model: Path) -> None:
    companion = beside(model, "weights.bin")
    before = content_hash(model)
    companion.rename(companion.with_name("weights.data"))
    assert content_hash(model) != before


# ── weights elsewhere ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("location", "elsewhere"), [
    ("weights.bin", False),
    ("./weights.bin", False),
    ("m.onnx.data", False),
    ("w" * 200 + ".bin", False),  # the length takes two bytes
    ("deeper/weights.bin", True),
    ("weights.json", True),
    ("d" * 100 + "/" + "w" * 100, True),
])
def test_weights_elsewhere_are_noticed(tmp_path: Path, location: str, elsewhere: bool) -> None:
    path = tmp_path / "m.onnx"
    (tmp_path / location).parent.mkdir(exist_ok=True)
    graph = onnx.parser.parse_graph("g (float[N, 64] x) => (float[N, 64] y) { y = MatMul(x, w) }")
    graph.initializer.append(numpy_helper.from_array(np.zeros((64, 64), np.float32), "w"))
    onnx.save(onnx.helper.make_model(graph), path, save_as_external_data=True, location=location, size_threshold=0)
    assert (tmp_path / location).exists()
    assert data_elsewhere(path) == elsewhere


def test_weights_inside_are_not_elsewhere(tmp_path: Path) -> None:
    path = onnx_models.write(tmp_path / "m.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }")
    assert not data_elsewhere(path)


@pytest.mark.parametrize("offset", range(256 * 1024 - 40, 256 * 1024 + 2))
def test_a_location_is_found_on_every_border_between_reads(model: Path, offset: int) -> None:
    model.write_bytes(bytes(offset) + b"\n\x08location\x12\x0fsub/weights.bin" + bytes(10))
    assert data_elsewhere(model)


# ── processor ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def cpu(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return cpu_features(path)


def test_cpu_features_tell_processors_apart_and_nothing_else(tmp_path: Path) -> None:
    old = cpu(tmp_path, "old", "processor\t: 0\nmodel name\t: A\ncpu MHz\t\t: 2000.1\nflags\t\t: fpu avx2\n")
    same = cpu(tmp_path, "same", "processor\t: 7\nmodel name\t: A\ncpu MHz\t\t: 3999.9\nflags\t\t: fpu avx2\n" * 2)
    new = cpu(tmp_path, "new", "processor\t: 0\nmodel name\t: A\ncpu MHz\t\t: 2000.1\nflags\t\t: fpu avx2 avx512f\n")
    assert old == same != new


def test_cpu_features_without_proc(tmp_path: Path) -> None:
    assert cpu_features(tmp_path / "absent")
