"""The page says what the code does: it is made from the schema, and its example is a file that loads."""

from pathlib import Path

from wakeful.config.load import Options, load
from wakeful.config.reference import EXAMPLE, reference
from wakeful.config.schema import DefaultsTable, ModelTable, ServerTable

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: make docs"


def test_the_page_has_every_key() -> None:
    for table in (ServerTable, DefaultsTable, ModelTable):
        for key, field in table.model_fields.items():
            assert f"| `{key}` |" in reference()
            assert field.description


def test_the_example_loads(tmp_path: Path) -> None:
    for name in ("fraud.onnx", "embedder.onnx"):
        (tmp_path / name).touch()
    (tmp_path / "models.toml").write_text(EXAMPLE, encoding="utf-8")
    settings = load(Options(config=tmp_path / "models.toml"), {})
    assert [model.id for model in settings.models] == ["fraud", "search/embedder"]
    assert settings.warnings == ()
    assert settings.memory.limit == 0.8
