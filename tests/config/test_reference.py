import ast
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

import ollama_gate
from ollama_gate.catalog.names import canonical
from ollama_gate.config import Config, load, reference

ROOT = Path(__file__).parents[2]
MODELS = '[models."qwen3:8b"]\nnum_ctx = 16384\nbudget = "75%"\n'


def uncommented(text: str) -> str:
    """The example with every key in force."""
    return re.sub(r"^# (?=\[models|[a-z_]+ = )", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("ollama-gate.example.toml", reference.example()),
        ("ollama-gate.schema.json", reference.schema()),
        ("docs/configuration.md", reference.page()),
    ],
)
def test_the_files_say_what_the_code_says(file: str, text: str) -> None:
    assert (ROOT / file).read_text(encoding="utf-8") == text, f"run scripts/reference to write {file} anew"


def test_the_example_as_it_is_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "ollama-gate.toml"
    file.write_text(reference.example(), encoding="utf-8")
    config = load(file, {}, canonical)
    assert config == load(None, {}, canonical)
    assert config.defaults.model_fields_set == set()


def test_every_key_of_the_example_can_be_put_in_force(tmp_path: Path) -> None:
    text = uncommented(reference.example())
    tables = tomllib.loads(text)
    named = {(section, key) for section, table in tables.items() if section != "models" for key in table}
    assert named == {(entry.section, entry.name) for entry in reference.entries()}
    file = tmp_path / "ollama-gate.toml"
    file.write_text(text, encoding="utf-8")
    config, plain = load(file, {}, canonical), load(None, {}, canonical)
    for entry in reference.entries():
        if entry.example == entry.default:
            value = getattr(getattr(config, entry.section), entry.name)
            assert value == getattr(getattr(plain, entry.section), entry.name), entry.name
    assert config.model_policy(canonical("qwen3-coder:30b")).num_ctx == 32768


def test_the_schema_takes_the_example_and_refuses_what_the_code_refuses() -> None:
    schema = json.loads(reference.schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    tables: dict[str, Any] = tomllib.loads(uncommented(reference.example()))
    assert list(validator.iter_errors(tables)) == []
    mistakes: list[dict[str, Any]] = [
        {"sever": {}},
        {"server": {"listn": ":1"}},
        {"server": {"max_body": "24G"}},
        {"queue": {"deadline": "soon"}},
        {"memory": {"on_full": "evcit"}},
        {"memory": {"limit": "Auto"}},
        {"defaults": {"num_ctx": 3}},
        {"defaults": {"budget": "all"}},
        {"models": {"x": {"num_ctxx": 1}}},
        {"server": {"origins": ["http://x/y"]}},
    ]
    for wrong in mistakes:
        assert list(validator.iter_errors(wrong)), wrong


def test_every_key_is_explained_with_its_variable() -> None:
    page = reference.page()
    for entry in reference.entries():
        assert len(entry.meaning) > 10
        assert entry.meaning.endswith(".")
        assert entry.example
        assert f"### {entry.section}.{entry.name}\n\n{entry.meaning}\n" in page
        assert entry.variable in page


def test_what_is_shown_reads_back_as_the_same_configuration(tmp_path: Path) -> None:
    file = tmp_path / "ollama-gate.toml"
    file.write_text(uncommented(reference.example()) + MODELS, encoding="utf-8")
    config = load(file, {}, canonical)
    file.write_text(reference.shown(config), encoding="utf-8")
    assert load(file, {}, canonical) == config


def test_what_is_shown_declares_nothing_that_was_not_declared(tmp_path: Path) -> None:
    file = tmp_path / "ollama-gate.toml"
    file.write_text(f"[defaults]\nshift = false\n{MODELS}", encoding="utf-8")
    config = load(file, {}, canonical)
    file.write_text(reference.shown(config), encoding="utf-8")
    again = load(file, {}, canonical)
    assert again.defaults.model_fields_set == {"shift"}
    for name in ("qwen3:8b", "other"):
        assert again.model_policy(canonical(name)) == config.model_policy(canonical(name))


@pytest.mark.parametrize("text", ["plain", 'quo"te', "back\\slash", "tab\tnew\nline", "é😀", "\x00\x1f\x7f"])
def test_any_text_is_written_as_toml(text: str) -> None:
    assert tomllib.loads(f"x = {reference.toml(text)}") == {"x": text}


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        Config().queue.depth = 3


@pytest.mark.slow
def test_every_key_is_read_by_some_part_of_the_gate() -> None:
    package = Path(ollama_gate.__file__).parent
    outside = [file for file in package.rglob("*.py") if not {"config", "rehearsal"} & set(file.parts)]
    read = {
        node.attr
        for file in outside
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    loading = ("num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap")
    by_property = {"listen": "address", **dict.fromkeys(loading, "load_options")}
    unread = {entry.name for entry in reference.entries() if by_property.get(entry.name, entry.name) not in read}
    assert unread == set(), "a key without effect is a promise that is not kept"
